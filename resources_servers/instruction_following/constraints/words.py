"""Constraints on the letters of each word, and on the order of words."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from resources_servers.instruction_following.constraints.texts import bare_words, sentences, words

_VOWELS = frozenset("aeiou")
_PRIMES = frozenset({2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97})


def alphabet(text: str) -> bool:
    """Require each word to start with the next letter of the alphabet. The letter after z is a."""
    places = [ord(word[0].lower()) - ord("a") for word in bare_words(text)]
    return all(0 <= place < 26 for place in places) and all(
        after == (before + 1) % 26 for before, after in itertools.pairwise(places)
    )


def three_vowels(text: str) -> bool:
    """Require a single paragraph that uses at most three of the five vowels."""
    return "\n" not in text.strip() and len(_VOWELS & set(text.lower())) <= 3


def consonant_clusters(text: str) -> bool:
    """Require two consonants in a row in each word."""
    return all(_has_cluster(word.lower()) for word in text.split())


def prime_lengths(text: str) -> bool:
    """Require a prime number of letters in each word."""
    return all(len(word) in _PRIMES for word in bare_words(text))


def no_consecutive(text: str) -> bool:
    """Forbid neighbouring words with the same first letter."""
    initials = [word[0].lower() for word in bare_words(text)]
    return all(before != after for before, after in itertools.pairwise(initials))


def alliteration_increment(text: str) -> bool:
    """Require each sentence to have more alliterating words than the previous one."""
    counts = [_alliterating(words(sentence.lower())) for sentence in sentences(text)]
    return all(before < after for before, after in itertools.pairwise(counts))


def _alliterating(found: list[str]) -> int:
    # Count words and not pairs, because a run of three alliterating words has only two pairs.
    is_same = [before[0] == after[0] for before, after in itertools.pairwise(found)]
    return sum(before or after for before, after in itertools.pairwise([False, *is_same, False]))


def _has_cluster(word: str) -> bool:
    return any(_is_consonant(before) and _is_consonant(after) for before, after in itertools.pairwise(word))


def _is_consonant(character: str) -> bool:
    return character.isalpha() and character not in _VOWELS


CHECKS: dict[str, Callable[..., bool]] = {
    "words:alphabet": alphabet,
    "words:vowel": three_vowels,
    "words:consonants": consonant_clusters,
    "words:prime_lengths": prime_lengths,
    "words:no_consecutive": no_consecutive,
    "sentence:alliteration_increment": alliteration_increment,
}

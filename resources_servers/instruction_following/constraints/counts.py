"""Constraints on counts and shares: numbers, pronouns, conjunctions, kinds of sentences, punctuation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from resources_servers.instruction_following.constraints.language import ENGLISH_STOP_WORDS
from resources_servers.instruction_following.constraints.texts import Count, Text, sentences, tokens, words

_NUMBER = re.compile(r"(?<![\w.,])[0-9]+(?:[.,][0-9]+)*(?!\w)")
_CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})
_PRONOUNS = frozenset({
    "i", "me", "my", "mine", "myself", "you", "your", "yours", "yourself", "yourselves", "he", "him", "his", "himself",
    "she", "her", "hers", "herself", "it", "its", "itself", "we", "us", "our", "ours", "ourselves", "they", "them",
    "their", "theirs", "themselves", "who", "whom", "whose", "this", "that", "these", "those",
})  # fmt: skip
_NAMES = frozenset({
    "Abigail", "Alexander", "Amelia", "Andrew", "Aria", "Audrey", "Ava", "Benjamin", "Charlotte", "Chloe",
    "Christopher", "Claire", "Daniel", "David", "Elijah", "Ella", "Emma", "Ethan", "Gabriel", "Grace", "Hannah",
    "Harper", "Isabella", "Jackson", "Jacob", "Jonathan", "Joseph", "Layla", "Leo", "Liam", "Lily", "Lucas",
    "Mason", "Matthew", "Mia", "Nathan", "Nicholas", "Noah", "Nora", "Olivia", "Owen", "Penelope", "Ryan",
    "Samuel", "Scarlett", "Sophia", "Stella", "Thomas", "Victoria", "Zoe",
})  # fmt: skip
"""The names in the public data."""
_TOLERATED_POINTS = 2
_INTERROBANGS = ("?!", "!?", "‽")

Percentage = Annotated[float, Field(ge=0, le=100)]


def numbers(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require exactly `N` numbers in digits; `1,000` and `2.5` are one each."""
    return len(_NUMBER.findall(text)) == N


def conjunctions(text: str, *, small_n: Count) -> bool:
    """Require at least `small_n` different words of: and, but, for, nor, or, so, yet."""
    return len(_CONJUNCTIONS & {word.lower() for word in words(text)}) >= small_n


def pronouns(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require at least `N` pronouns."""
    return sum(word.lower() in _PRONOUNS for word in words(text)) >= N


def person_names(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require at least `N` different names of fifty first names."""
    return len(_NAMES.intersection(tokens(text))) >= N


def trigram_overlap(text: str, *, reference_text: Text, percentage: Percentage) -> bool:
    """Require this percentage of different trigrams to be in the reference too, within two percentage points."""
    ours, theirs = _trigrams(text), _trigrams(reference_text)
    return bool(ours) and abs(100 * len(ours & theirs) / len(ours) - percentage) <= _TOLERATED_POINTS


def punctuation(text: str) -> bool:
    """Require each of . , ! ? ; : and an interrobang."""
    return all(mark in text for mark in ".,!?;:") and any(mark in text for mark in _INTERROBANGS)


def stop_words(text: str, *, percentage: Percentage) -> bool:
    """Allow at most this percentage of stop words, such as `the`, `of` and `is`."""
    found = [word.lower() for word in words(text)]
    return 100 * sum(word in ENGLISH_STOP_WORDS for word in found) <= percentage * len(found)


def sentence_type(text: str) -> bool:
    """Require twice as many statements as questions."""
    kinds = _kinds(text)
    return kinds["?"] > 0 and kinds["."] == 2 * kinds["?"]


def sentence_balance(text: str) -> bool:
    """Require equal numbers of statements, questions and exclamations."""
    kinds = _kinds(text)
    return kinds["."] == kinds["?"] == kinds["!"] > 0


def unique_words(text: str) -> bool:
    """Forbid repeated words."""
    found = [word.lower() for word in words(text)]
    return len(set(found)) == len(found)


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}


def _kinds(text: str) -> dict[str, int]:
    """Count the sentences that end with each mark."""
    kinds = {".": 0, "?": 0, "!": 0}
    for sentence in sentences(text):
        mark = sentence.rstrip("\"'”’)]*_»")[-1:]
        if mark in kinds:
            kinds[mark] += 1
    return kinds


CHECKS: dict[str, Callable[..., bool]] = {
    "count:numbers": numbers,
    "count:conjunctions": conjunctions,
    "count:pronouns": pronouns,
    "count:person_names": person_names,
    "count:punctuation": punctuation,
    "count:count_unique": unique_words,
    "ratio:overlap": trigram_overlap,
    "ratio:stop_words": stop_words,
    "ratio:sentence_type": sentence_type,
    "ratio:sentence_balance": sentence_balance,
}

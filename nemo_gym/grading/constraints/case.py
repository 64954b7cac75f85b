"""Constraints on capitals and small letters, and on punctuation that must not be there."""

from __future__ import annotations

from collections.abc import Callable

from nemo_gym.grading.constraints.language import is_in_language
from nemo_gym.grading.constraints.texts import Count, Relation, compare, words

_SMALL_IN_TITLES = frozenset({
    "a", "an", "and", "as", "at", "but", "by", "for", "from", "if", "in", "into", "nor", "of", "on", "or", "over",
    "the", "to", "up", "with",
})  # fmt: skip


def capital_word_frequency(text: str, *, capital_frequency: Count, capital_relation: Relation = "at least") -> bool:
    """So many words in capitals only."""
    return compare(sum(word.isupper() for word in words(text)), capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    """English in capitals only."""
    return text.isupper() and is_in_language(text, "en")


def english_lowercase(text: str) -> bool:
    """English in small letters only."""
    return text.islower() and is_in_language(text, "en")


def lowercase_counting(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """At most so many words in small letters only."""
    return sum(word.islower() for word in words(text)) <= N


def title_case(text: str) -> bool:
    """Each word begins with a capital; articles, prepositions and conjunctions need not."""
    found = [word for word in words(text) if word[0].isalpha()]
    return bool(found) and all(word[0].isupper() or word in _SMALL_IN_TITLES for word in found)


def no_comma(text: str) -> bool:
    """There is no comma."""
    return "," not in text


def no_dot(text: str) -> bool:
    """There is no full stop."""
    return "." not in text


def no_exclamation(text: str) -> bool:
    """There is no exclamation mark."""
    return "!" not in text


CHECKS: dict[str, Callable[..., bool]] = {
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "count:lowercase_counting": lowercase_counting,
    "format:title_case": title_case,
    "punctuation:no_comma": no_comma,
    "punctuation:punctuation_dot": no_dot,
    "punctuation:punctuation_exclamation": no_exclamation,
}

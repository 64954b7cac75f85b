"""Constraints on upper and lower case, and on forbidden punctuation."""

from __future__ import annotations

from collections.abc import Callable

from resources_servers.instruction_following.constraints.language import is_in_language
from resources_servers.instruction_following.constraints.texts import Count, Relation, compare, words

_SMALL_IN_TITLES = frozenset({
    "a", "an", "and", "as", "at", "but", "by", "for", "from", "if", "in", "into", "nor", "of", "on", "or", "over",
    "the", "to", "up", "with",
})  # fmt: skip


def capital_word_frequency(text: str, *, capital_frequency: Count, capital_relation: Relation = "at least") -> bool:
    """Compare the number of words in capitals with `capital_frequency`."""
    return compare(sum(word.isupper() for word in words(text)), capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    return text.isupper() and is_in_language(text, "en")


def english_lowercase(text: str) -> bool:
    return text.islower() and is_in_language(text, "en")


def lowercase_counting(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Allow at most `N` words in lower case."""
    return sum(word.islower() for word in words(text)) <= N


def title_case(text: str) -> bool:
    """Require a capital at the start of each word, except articles, prepositions and conjunctions."""
    found = [word for word in words(text) if word[0].isalpha()]
    return bool(found) and all(word[0].isupper() or word in _SMALL_IN_TITLES for word in found)


def no_comma(text: str) -> bool:
    return "," not in text


def no_dot(text: str) -> bool:
    return "." not in text


def no_exclamation(text: str) -> bool:
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

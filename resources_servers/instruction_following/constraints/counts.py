"""Constraints on counts and shares, for example of numbers, pronouns, kinds of sentences and punctuation marks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from resources_servers.instruction_following.constraints.texts import (
    Count,
    Text,
    bare_words,
    sentences,
    tokens,
    words,
)

_NUMBER = re.compile(r"[0-9]+")
_CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})
_PRONOUNS = frozenset({
    "i", "me", "my", "mine", "myself", "you", "your", "yours", "yourself", "yourselves", "he", "him", "his", "himself",
    "she", "her", "hers", "herself", "it", "its", "itself", "we", "us", "our", "ours", "ourselves", "they", "them",
    "their", "theirs", "themselves",
})  # fmt: skip
_LISTED_STOP_WORDS = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves a an the this that these those what which who whom
    am is are was were be been being have has had having do does did doing can will should and but if or because
    as until while of at by for with about against between into through during before after above below to from
    up down in out on off over under again further then once here there when where why how all any both each few
    more most other some such no nor not only own same so than too very just now s t d ll m o re ve y don ain
    aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
"""
"""The usual English stop words, with fragments such as `t` and `s`, into which `\\w+` splits `don't` and `it's`."""
_STOP_WORDS = frozenset(_LISTED_STOP_WORDS.split())
_NAMES = frozenset({
    "Abigail", "Alexander", "Amelia", "Andrew", "Aria", "Audrey", "Ava", "Benjamin", "Charlotte", "Chloe",
    "Christopher", "Claire", "Daniel", "David", "Elijah", "Ella", "Emma", "Ethan", "Gabriel", "Grace", "Hannah",
    "Harper", "Isabella", "Jackson", "Jacob", "Jonathan", "Joseph", "Layla", "Leo", "Liam", "Lily", "Lucas",
    "Mason", "Matthew", "Mia", "Nathan", "Nicholas", "Noah", "Nora", "Olivia", "Owen", "Penelope", "Ryan",
    "Samuel", "Scarlett", "Sophia", "Stella", "Thomas", "Victoria", "Zoe",
})  # fmt: skip
"""The first names that are counted, as in the public data."""
_TOLERATED_POINTS = 2
_INTERROBANGS = ("?!", "!?", "‽")

Percentage = Annotated[float, Field(ge=0, le=100)]


def numbers(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require exactly `N` numbers in digits. `1,000`, `2.5` and `3rd` count as one each."""
    return sum(len(_NUMBER.findall(word)) for word in bare_words(text)) == N


def conjunctions(text: str, *, small_n: Count) -> bool:
    """Require at least `small_n` different words from this list: and, but, for, nor, or, so, yet."""
    return len(_CONJUNCTIONS & {word.lower() for word in words(text)}) >= small_n


def pronouns(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require at least `N` personal, possessive or reflexive pronouns. `she/her` counts as two."""
    return sum(word in _PRONOUNS for word in bare_words(text.lower().replace("/", " "))) >= N


def person_names(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require at least `N` different names from `_NAMES`."""
    return len(_NAMES.intersection(tokens(text))) >= N


def trigram_overlap(text: str, *, reference_text: Text, percentage: Percentage) -> bool:
    """Require `percentage` ± 2 percent of the text's distinct character trigrams to occur in the reference text."""
    ours, theirs = _trigrams(text), _trigrams(reference_text)
    return bool(ours) and abs(100 * len(ours & theirs) / len(ours) - percentage) <= _TOLERATED_POINTS


def punctuation(text: str) -> bool:
    """Require an interrobang and, apart from it, each of the marks . , ! ? ; : at least once."""
    interrobang = next((mark for mark in _INTERROBANGS if mark in text), None)
    return interrobang is not None and all(mark in text.replace(interrobang, "", 1) for mark in ".,!?;:")


def stop_words(text: str, *, percentage: Percentage) -> bool:
    """Require at most `percentage` % of the words to be stop words, such as `the`, `of` and `is`."""
    found = [word.lower() for word in tokens(text)]
    return bool(found) and 100 * sum(word in _STOP_WORDS for word in found) <= percentage * len(found)


def sentence_type(text: str) -> bool:
    """Require twice as many statements as questions."""
    kinds = _kinds(text)
    return kinds["?"] > 0 and kinds["."] == 2 * kinds["?"]


def sentence_balance(text: str) -> bool:
    """Require equal numbers of statements, questions and exclamations."""
    kinds = _kinds(text)
    return kinds["."] == kinds["?"] == kinds["!"] > 0


def equal_sentences(text: str) -> bool:
    """Require three sentences of the same length in characters. No word may be repeated in the text."""
    found = sentences(text)
    return len(found) == 3 and len(set(map(len, found))) == 1 and unique_words(text)


def unique_words(text: str) -> bool:
    found = [word.lower() for word in words(text)]
    return len(set(found)) == len(found)


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}


def _kinds(text: str) -> dict[str, int]:
    """Count the sentences that end with `.`, `?` and `!`."""
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
    "ratio:sentence_words": equal_sentences,
}

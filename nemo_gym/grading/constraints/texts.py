"""A text's words, sentences, paragraphs and lines, each found in one pass; and how counts are compared."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

Relation = Literal["at least", "less than", "at most", "more than", "exactly"]
"""The public data know the first two."""

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]

_TOKEN = re.compile(r"\w+")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’»)\]*_]*")
_CLOSED_WITHOUT_SPACE = "。！？"
_NO_END = frozenset({
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "etc", "eg", "ie", "e.g", "i.e", "cf", "no", "vol",
    "fig", "approx", "a.m", "p.m", "u.s",
})  # fmt: skip
_LONGEST_ABBREVIATION = 7


def compare(count: int, relation: Relation, wanted: int) -> bool:
    """Whether a count is as wanted."""
    if relation == "at least":
        return count >= wanted
    if relation == "less than":
        return count < wanted
    if relation == "at most":
        return count <= wanted
    return count > wanted if relation == "more than" else count == wanted


def tokens(text: str) -> list[str]:
    """Runs of letters and digits: `don't` is two."""
    return _TOKEN.findall(text)


def words(text: str) -> list[str]:
    """Words as a reader sees them: `don't` and `well-known` are one each."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """What ends with a full stop, a question or an exclamation mark, and what is left at the end.

    A line's end is none. Neither is the full stop of `Dr.`, of an initial or of a list's `1.`, nor are dots or a full
    stop in quotes before a small letter.
    """
    found: list[str] = []
    start = 0
    for end in [*sentence_ends(text), len(text)]:
        sentence = text[start:end].strip()
        if _TOKEN.search(sentence):
            found.append(sentence)
        start = end
    return found


def sentence_ends(text: str) -> list[int]:
    """Where the marks end that end a sentence."""
    ends: list[int] = []
    for mark in _SENTENCE_END.finditer(text):
        if _ends_sentence(text, ends[-1] if ends else 0, mark):
            ends.append(mark.end())
    return ends


def _ends_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    if mark[0][0] in _CLOSED_WITHOUT_SPACE:
        return True
    after = text[mark.end() : mark.end() + 1]
    if after and not after.isspace():
        return False
    if mark[0][0] not in ".…":
        return True
    following = text[mark.end() : mark.end() + 80].lstrip()[:1]
    if mark[0] != ".":
        return not following.islower()
    before = text[max(start, mark.start() - _LONGEST_ABBREVIATION) : mark.start()].split()
    last = before[-1].strip("(\"'“‘*_") if before else ""
    is_initial = len(last) == 1 and last.isupper() and last != "I"
    line = text[text.rfind("\n", start, mark.start()) + 1 : mark.start()] if last.isdigit() else ""
    is_number_of_list = bool(line) and line.strip() == last
    return not following or not (last.lower() in _NO_END or is_initial or is_number_of_list)


def paragraphs(text: str) -> list[str]:
    """What blank lines keep apart."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines).strip() for lines in found if lines]


def lines(text: str) -> list[str]:
    """The lines that are not blank."""
    return [line for line in text.split("\n") if line.strip()]


def occurrences(phrase: str, text: str) -> int:
    """How often a phrase stands in a text, within words too, case ignored."""
    return text.lower().count(phrase.lower())


def has_word(word: str, text: str) -> bool:
    """Whether a word or phrase stands in a text, not as a part of a longer word, case ignored."""
    return count_word(word, text) > 0


def count_word(word: str, text: str) -> int:
    """How often it stands so."""
    wanted, searched = word.lower(), text.lower()
    count, at = 0, searched.find(wanted)
    while at >= 0:
        before, after = searched[at - 1 : at] if at else "", searched[at + len(wanted) : at + len(wanted) + 1]
        count += not (_is_of_word(before) and _is_of_word(wanted[:1])) and not (
            _is_of_word(after) and _is_of_word(wanted[-1:])
        )
        at = searched.find(wanted, at + len(wanted))
    return count


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"

"""Find the words, sentences, paragraphs and lines of a text in linear time, and compare counts."""

from __future__ import annotations

import re
import string
from typing import Annotated, Literal

from pydantic import Field

Relation = Literal["at least", "less than", "at most", "more than", "exactly"]
"""The relations of a count to a limit. The public data uses only the first two."""

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]

_UNSEEN = re.compile(
    r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""A regex for invisible characters, such as the zero-width space."""
_TOKEN = re.compile(r"\w+")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’»)\]*_]*")
_CLOSED_WITHOUT_SPACE = "。！？"
_NO_END = frozenset({
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "etc", "eg", "ie", "e.g", "i.e", "cf", "no", "vol",
    "fig", "approx", "a.m", "p.m", "u.s",
})  # fmt: skip
_LONGEST_ABBREVIATION = 7
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def compare(count: int, relation: Relation, wanted: int) -> bool:
    """Return whether `count` has the given relation to `wanted`."""
    if relation == "at least":
        return count >= wanted
    if relation == "less than":
        return count < wanted
    if relation == "at most":
        return count <= wanted
    return count > wanted if relation == "more than" else count == wanted


def without_unseen(text: str) -> str:
    """Remove invisible characters, because they could hide a word from a check or split it in two."""
    return _UNSEEN.sub("", text)


def tokens(text: str) -> list[str]:
    """Return the runs of letters and digits: `don't` is two tokens."""
    return _TOKEN.findall(without_unseen(text))


def words(text: str) -> list[str]:
    """Return words as a reader counts them: `don't` and `well-known` are one word each."""
    return _WORD.findall(without_unseen(text))


def bare_words(text: str) -> list[str]:
    """Split a text at whitespace and remove ASCII punctuation: `don't` becomes `dont`. Many IFBench checks use it."""
    return without_unseen(text).translate(_WITHOUT_PUNCTUATION).split()


def sentences(text: str) -> list[str]:
    """Split a text into sentences at full stops, question marks and exclamation marks.

    Text after the last of these marks is a sentence, too. A line break does not end a sentence. Neither does the full
    stop of `Dr.`, of an initial or of a list's `1.`, nor dots or a quoted full stop before a lower-case letter.
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
    """Return the offset after each mark that ends a sentence."""
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
    """Split a text into paragraphs at blank lines."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines).strip() for lines in found if lines]


def lines(text: str) -> list[str]:
    """Return the lines that are not blank."""
    return [line for line in text.split("\n") if line.strip()]


def occurrences(phrase: str, text: str) -> int:
    """Count the occurrences of a phrase in a text, including those within words. Case is ignored."""
    return without_unseen(text).lower().count(without_unseen(phrase).lower())


def has_word(word: str, text: str) -> bool:
    """Return whether a text contains a word or phrase, except as part of a longer word. Case is ignored."""
    return count_word(word, text) > 0


def count_word(word: str, text: str) -> int:
    """Count a word or phrase in a text, except as part of a longer word. Case is ignored."""
    wanted, searched = without_unseen(word).lower(), without_unseen(text).lower()
    if not wanted:
        return 0
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

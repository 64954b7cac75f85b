"""Grade a reply: the answer exactly, and the ids of the passages that it cites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from nemo_gym.grading import final_answer, same_number, same_text, strip_reasoning, unwrapped

Grader = Literal["number", "text", "list"]
Expected = str | list[str]

PENALTY_PER_PASSAGE = 0.1
"""For each cited passage on which the answer does not rest, besides its effect on F1."""

_BLANK = "[\\s>*_`#-]{0,20}"
_SOURCES_LINE = re.compile(rf"{_BLANK}sources?[*_`]{{0,4}}\s?[:：](.*)", re.IGNORECASE | re.DOTALL)
_ANSWER_LINE = re.compile(rf"{_BLANK}(?:final\s)?answer\b", re.IGNORECASE)
_SEPARATOR = re.compile(r"[,;]|[-=]>|→|\b(?:and|then)\b|(?:(?<= )|\A)(?:[-•*–]|\(?\d{1,2}[.)])(?= )", re.IGNORECASE)
"""Between the items of a list, or before each of them."""
_QUOTES = "\"'“”‘’«»"
_ID_BRACKETS = "[]() "


class Graded(NamedTuple):
    """A reply's reward and the reasons for it."""

    reward: float
    components: dict[str, float]
    answer: str | None
    """The final answer that was found."""
    cited: list[str]
    """The ids that were found, without repetitions."""


class Reply(NamedTuple):
    """The parts of a reply that are graded."""

    answer: str | None
    cited: list[str]


def graded(text: str, expected: Expected, grader: Grader, sources: Sequence[str] | None) -> Graded:
    """Return the reward of a reply. With `sources`, a right answer earns the F1 of its citations less a penalty."""
    reply = read_reply(text) if sources else Reply(final_answer(text), [])
    is_right = reply.answer is not None and is_same(expected, reply.answer, grader)
    components = {"answer": float(is_right)}
    if isinstance(expected, list):
        components["list_f1"] = _list_f1(expected, items_of(reply.answer or ""))
    if not sources:
        return Graded(float(is_right), components, reply.answer, [])
    f1, penalty = _citation_scores(set(sources), set(reply.cited))
    components |= {"citation_f1": f1, "penalty": penalty}
    return Graded(float(is_right) * max(0.0, f1 - penalty), components, reply.answer, reply.cited)


def is_same(expected: Expected, answer: str, grader: Grader) -> bool:
    """Return whether an answer is the expected number, text or list."""
    if isinstance(expected, list):
        items = items_of(answer)
        return len(items) == len(expected) and all(map(_is_same_text, expected, items))
    if grader == "number":
        return same_number(unwrapped(expected), unwrapped(answer).strip(_QUOTES)) is True
    return _is_same_text(expected, answer)


def items_of(answer: str) -> list[str]:
    """Return the items of a list that is separated by commas, words, arrows, bullets or numbers."""
    inner = unwrapped(answer).removesuffix(".")
    if inner[:1] + inner[-1:] in {"[]", "()", "{}"}:
        inner = inner[1:-1]
    return [item for item in map(str.strip, _SEPARATOR.split(inner)) if item]


def read_reply(text: str) -> Reply:
    """Return the final answer and the ids after the last "Sources:" at the beginning of a line.

    The ids end with their paragraph or at the line of the answer.
    """
    lines = strip_reasoning(text).splitlines()
    starts = [number for number, line in enumerate(lines) if _SOURCES_LINE.match(line)]
    if not starts:
        return Reply(final_answer(text), [])
    start = end = starts[-1]
    while end < len(lines) and lines[end].strip() and not _ANSWER_LINE.match(lines[end]):
        end += 1
    found = _SOURCES_LINE.match(", ".join(lines[start:end]))
    ids = [_id_in(item) for item in items_of(found[1] if found else "")]
    return Reply(final_answer("\n".join([*lines[:start], *lines[end:]])), list(dict.fromkeys(ids)))


def _id_in(item: str) -> str:
    return unwrapped(item).strip(_ID_BRACKETS).removesuffix(".").upper()


def _is_same_text(expected: str, answer: str) -> bool:
    return same_text(expected, answer, keeps_case=False)


def _list_f1(expected: Sequence[str], items: Sequence[str]) -> float:
    """Return the F1 of the items that are in their place."""
    in_place = sum(map(_is_same_text, expected, items))
    return 2 * in_place / (len(expected) + len(items))


def _citation_scores(sources: set[str], cited: set[str]) -> tuple[float, float]:
    """Return the F1 of the cited passages and the penalty for the irrelevant ones."""
    f1 = 2 * len(sources & cited) / (len(sources) + len(cited))
    return f1, min(1.0, PENALTY_PER_PASSAGE * len(cited - sources))

"""Grade a reply by its answer, which must be the expected one, and by the ids of the passages that it cites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from nemo_gym.grading import (
    final_answer,
    has_asked_unit,
    number_in,
    same_number,
    same_text,
    strip_reasoning,
    unwrapped,
)

Grader = Literal["number", "text", "list"]
Expected = str | list[str]

PENALTY_PER_PASSAGE = 0.1
"""The penalty for each cited passage that is not a source, in addition to its effect on F1."""

_BLANK = "[\\s\u200b\ufeff>*_`#-]{0,20}"
_SOURCES_LINE = re.compile(rf"{_BLANK}sources?[*_`]{{0,4}}\s?[:：](.*)", re.IGNORECASE | re.DOTALL)
_ANSWER_LINE = re.compile(rf"{_BLANK}(?:final\s)?answer\b", re.IGNORECASE)
_OTHER_LABEL = re.compile(
    r"(?<=[\s,;.|])(?=[*_`]{0,4}(?:sources?|(?:final\s)?answer)[*_`]{0,4}\s?[:：])", re.IGNORECASE
)
"""A regex for the position before "Answer:" in a "Sources:" line, or before "Sources:" in an "Answer:" line."""
_ID = re.compile(r"(?<!\bnot )(?<![^\W_])P\d+(?![^\W_])", re.IGNORECASE | re.ASCII)
"""A regex for a passage's id that does not directly follow the word "not"."""
_SEPARATOR = re.compile(r"[,;]|[-=]>|→|\b(?:and|then)\b|(?:(?<= )|\A)(?:[-•*–]|\(?\d{1,2}[.)])(?= )", re.IGNORECASE)
"""A regex for a separator between list items, or for the bullet or number before an item."""
_QUOTES = "\"'“”‘’«»"


class Graded(NamedTuple):
    """A reply's reward and the reasons for it."""

    reward: float
    components: dict[str, float]
    answer: str | None
    """The final answer that was found in the reply."""
    cited: list[str]
    """The ids of the cited passages, without repetitions."""


class Reply(NamedTuple):
    """The parts of a reply that are graded."""

    answer: str | None
    cited: list[str]


def graded(text: str, expected: Expected, grader: Grader, sources: Sequence[str] | None, question: str = "") -> Graded:
    """Return a reply's grade. A wrong answer earns 0.

    A right answer earns 1 or, if `sources` are given, the F1 of the citations minus a penalty, but at least 0.
    """
    reply = read_reply(text) if sources else Reply(final_answer(text), [])
    is_right = reply.answer is not None and is_same(expected, reply.answer, grader, question)
    components = {"answer": float(is_right)}
    if isinstance(expected, list):
        components["list_f1"] = _list_f1(expected, items_of(reply.answer or ""))
    if not sources:
        return Graded(float(is_right), components, reply.answer, [])
    f1, penalty = _citation_scores(set(sources), set(reply.cited))
    components |= {"citation_f1": f1, "penalty": penalty}
    return Graded(float(is_right) * max(0.0, f1 - penalty), components, reply.answer, reply.cited)


def is_same(expected: Expected, answer: str, grader: Grader, question: str = "") -> bool:
    """Return whether an answer is the expected number, text or list.

    A number with a unit is accepted if the question names the unit.
    """
    if isinstance(expected, list):
        items = items_of(answer)
        return len(items) == len(expected) and all(map(_is_same_text, expected, items))
    if grader == "number":
        return _is_same_number(unwrapped(expected), unwrapped(answer).strip(_QUOTES), question)
    return _is_same_text(expected, answer)


def _is_same_number(expected: str, answer: str, question: str) -> bool:
    wanted, given = number_in(expected), number_in(answer)
    if wanted is None or given is None or not has_asked_unit(given, wanted, question):
        return False
    return same_number(expected, answer) is True


def items_of(answer: str) -> list[str]:
    """Return the items of a list. Separators are , and ;, arrows, bullets, numbers such as `1.`, "and" and "then"."""
    inner = unwrapped(answer).removesuffix(".")
    if inner[:1] + inner[-1:] in {"[]", "()", "{}"}:
        inner = inner[1:-1]
    return [item for item in map(str.strip, _SEPARATOR.split(inner)) if item]


def read_reply(text: str) -> Reply:
    """Return the final answer and the ids after the last "Sources:" at the beginning of a line.

    Read ids up to the end of the paragraph or to the answer. If this paragraph has no ids, read those of the next one.
    """
    lines = [part for line in strip_reasoning(text).splitlines() for part in _labelled_parts(line)]
    starts = [number for number, line in enumerate(lines) if _SOURCES_LINE.match(line)]
    if not starts:
        return Reply(final_answer(text), [])
    start = starts[-1]
    end = start + 1
    ids = _ID.findall(lines[start])
    while end < len(lines) and (lines[end].strip() or not ids) and not _ANSWER_LINE.match(lines[end]):
        ids += _ID.findall(lines[end])
        end += 1
    answer = final_answer("\n".join([*lines[:start], *lines[end:]]))
    return Reply(answer, list(dict.fromkeys(map(str.upper, ids))))


def _labelled_parts(line: str) -> list[str]:
    """Split a line into two parts if it contains both the sources and the answer. Return other lines unchanged."""
    is_labelled = _SOURCES_LINE.match(line) or _ANSWER_LINE.match(line)
    parts = _OTHER_LABEL.split(line, maxsplit=1) if is_labelled else [line]
    return [part.rstrip(" ,;.|") for part in parts] if len(parts) > 1 else parts


def _is_same_text(expected: str, answer: str) -> bool:
    return same_text(expected, answer, keeps_case=False)


def _list_f1(expected: Sequence[str], items: Sequence[str]) -> float:
    """Return the F1 score of the items. Only items at their expected position count as correct."""
    in_place = sum(map(_is_same_text, expected, items))
    return 2 * in_place / (len(expected) + len(items))


def _citation_scores(sources: set[str], cited: set[str]) -> tuple[float, float]:
    """Return the F1 of the cited passages and the penalty for the irrelevant ones."""
    f1 = 2 * len(sources & cited) / (len(sources) + len(cited))
    return f1, min(1.0, PENALTY_PER_PASSAGE * len(cited - sources))

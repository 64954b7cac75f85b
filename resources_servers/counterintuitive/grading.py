"""Compare an answer with the expected answer, in the form that the task asks for."""

from __future__ import annotations

import re
from typing import Literal

from nemo_gym.grading import has_asked_unit, number_in, same_number, same_text, unwrapped

Form = Literal["text", "number", "list", "date", "time"]

LONGEST = 500
"""Maximum number of characters of an answer. Longer answers count as wrong, because they would slow down regexes."""
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_DAY = r"0?(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
_MONTH = r"(?P<month>[a-z]{3,9})\.?"
_DATES = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (rf"(?:the\s)?{_DAY}\s(?:of\s)?{_MONTH}", rf"{_MONTH}\s(?:the\s)?{_DAY}")
)
_TIME = re.compile(r"0?(\d{1,2})[:.](\d{2})(?:\s?(?:h|hrs|o['’]clock))?", re.ASCII)
_BRACKETS = "()[] "
_SEPARATOR = re.compile(r"\s*[,;]\s*(?:and\s+)?|\s+and\s+|(?:(?<=\s)|\A)\d{1,2}[.)]\s")
"""A regex for the separator between two list items, or for the number in front of an item."""
_MARKS = re.compile(r"[*_`$]")
_BRACKET = re.compile(r"\s*\(")


def matches(form: Form, expected: str, answer: str, question: str = "") -> bool:
    """Return whether the answer equals the expected answer in the given form, regardless of notation.

    A number may have the unit of the expected answer, or a unit that consists of words of the question.
    """
    if len(answer) > LONGEST:
        return False
    if form == "list":
        return _same_items(expected, answer)
    if form == "date":
        return _date_in(answer) is not None and _date_in(answer) == _date_in(expected)
    if form == "time":
        return _time_in(answer) is not None and _time_in(answer) == _time_in(expected)
    return _same_number(expected, answer, question) if form == "number" else _same_text(expected, answer)


def _same_number(expected: str, answer: str, question: str) -> bool:
    wanted, given = number_in(unwrapped(expected)), number_in(unwrapped(answer))
    if wanted is None or given is None or not has_asked_unit(given, wanted, question):
        return False
    return same_number(unwrapped(expected), unwrapped(answer)) is True


def _same_text(expected: str, answer: str) -> bool:
    """Return whether two texts are the same, apart from markup and the space before a bracket."""
    one, other = (_BRACKET.sub(" (", _MARKS.sub("", text)) for text in (expected, answer))
    return same_text(one, other, keeps_case=False)


def _same_items(expected: str, answer: str) -> bool:
    """Return whether two lists have the same items in the same order."""
    wanted, given = _items(expected), _items(answer)
    return len(wanted) == len(given) and all(
        _same_number(one, other, "") if one.lstrip("-").isdigit() else _same_text(one, other)
        for one, other in zip(wanted, given, strict=True)
    )


def _items(text: str) -> list[str]:
    return list(filter(None, _SEPARATOR.split(unwrapped(text).rstrip(".").strip(_BRACKETS))))


def _date_in(text: str) -> tuple[int, str] | None:
    """Return the day and the month of `7 April`, `7th of April`, `April 7` or `7 Apr`."""
    plain = _plain(text)
    found = next((date for pattern in _DATES if (date := pattern.fullmatch(plain))), None)
    month = found and next((each for each in MONTHS if each.lower().startswith(found["month"])), None)
    return (int(found["day"]), month) if found and month else None


def _time_in(text: str) -> tuple[int, int] | None:
    found = _TIME.fullmatch(_plain(text))
    return (int(found[1]), int(found[2])) if found else None


def _plain(text: str) -> str:
    return " ".join(unwrapped(text).strip("'\"“”‘’()[] ").rstrip(".").lower().split())

"""Grade an answer about pictures: numbers, times, words, moves in a maze, and points in a picture."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from nemo_gym.grading import final_answer, has_asked_unit, normalised, number_in, same_text, unwrapped
from resources_servers.visual_reasoning.tasks import Grader

MINUTES_OF_DIAL = 12 * 60

_TIME = re.compile(
    r"(?P<hour>\d{1,2})\s?[:.h]\s?(?P<minute>\d{2})\s?(?:a\.?m\.?|p\.?m\.?|o['’]clock|h)?", re.IGNORECASE
)
_BEFORE_NAME = re.compile(r"(?:(?:a|an|the)\s+)?(?:exit\s+)?", re.IGNORECASE)
_UNITS = {
    "l": "litres", "liter": "litres", "liters": "litres", "kmh": "km/h", "kph": "km/h", "v": "volts", "w": "watts"
}  # fmt: skip
_UNIT = re.compile(rf"(?<=[\d\s])(?:{'|'.join(_UNITS)})\.?\Z", re.IGNORECASE)
"""A regex for other spellings of the gauges' units at the end of an answer."""
_MOVE = re.compile(r"up|down|left|right|[udlr]|[↑↓←→]", re.IGNORECASE)
_MOVES = re.compile(rf"(?:(?:{_MOVE.pattern})[\s,;>-]*)+", re.IGNORECASE)
_LETTER_OF_ARROW = {"↑": "U", "↓": "D", "←": "L", "→": "R"}
_LONGEST_MOVES = 1_000
_COORDINATE = r"(?P<{0}>-?\d{{1,9}}(?:\.\d{{1,9}})?)\s*(?:px|pixels?)?"
_POINT = re.compile(
    r"[(\[]?\s*(?:x\s*[=:]\s*)?" + _COORDINATE.format("x") + r"\s*[,;]\s*(?:y\s*[=:]\s*)?" + _COORDINATE.format("y")
    + r"\s*[)\]]?\.?", re.IGNORECASE,
)  # fmt: skip


class Key(NamedTuple):
    """The fields of a row that decide which answers are right."""

    question: str
    expected: str
    tolerance: str | None = None
    box: tuple[int, int, int, int] | None = None
    reach: int | None = None


class Grade(NamedTuple):
    """The reward and the normalised answer. The answer is None if it does not have the requested form."""

    reward: float
    answer: str | None


NO_ANSWER = Grade(0.0, None)


def grade_number(answer: str, key: Key) -> Grade:
    """Compare numbers. A unit that the question names is accepted, also in a short form such as `l`."""
    plain = _UNIT.sub(lambda unit: f" {_UNITS[unit[0].lower().rstrip('.')]}", unwrapped(answer))
    given, expected = number_in(plain), number_in(key.expected)
    if given is None or expected is None or not has_asked_unit(given, expected, key.question):
        return NO_ANSWER
    is_right = abs(given.value - expected.value) <= Fraction(key.tolerance or 0)
    return Grade(float(is_right), _plain_number(given.value))


def grade_time(answer: str, key: Key) -> Grade:
    """Compare times on a clock face, on which 3:05 and 15:05 are the same."""
    given, expected = minutes_of(answer), minutes_of(key.expected)
    if given is None or expected is None:
        return NO_ANSWER
    apart = abs(given - expected)
    is_right = min(apart, MINUTES_OF_DIAL - apart) <= Fraction(key.tolerance or 0)
    return Grade(float(is_right), f"{given // 60 or 12}:{given % 60:02}")


def grade_text(answer: str, key: Key) -> Grade:
    given, expected = (_BEFORE_NAME.sub("", normalised(text), count=1) for text in (answer, key.expected))
    return Grade(float(same_text(expected, given, keeps_case=False)), given)


def grade_moves(answer: str, key: Key) -> Grade:
    given = moves_in(answer)
    return NO_ANSWER if given is None else Grade(float(given == key.expected), given)


def grade_point(answer: str, key: Key) -> Grade:
    """Grade a point by its distance from the box. The reward falls from 1 in the box to 0 at the distance `reach`."""
    found = _POINT.fullmatch(unwrapped(answer).replace("−", "-"))
    if found is None or key.box is None or key.reach is None:
        return NO_ANSWER
    x, y = float(found["x"]), float(found["y"])
    left, top, right, bottom = key.box
    distance = math.hypot(max(left - x, 0, x - right), max(top - y, 0, y - bottom))
    return Grade(max(1 - distance / key.reach, 0.0), f"{x:g}, {y:g}")


def minutes_of(text: str) -> int | None:
    """Return the minutes since twelve o'clock, or None if the text is not a time."""
    found = _TIME.fullmatch(unwrapped(text).rstrip("."))
    if found is None or int(found["hour"]) > 24 or int(found["minute"]) > 59:
        return None
    return (int(found["hour"]) * 60 + int(found["minute"])) % MINUTES_OF_DIAL


def moves_in(text: str) -> str | None:
    """Return the moves as letters, such as `UDLR`, or None if the text contains anything else."""
    plain = unwrapped(text).strip(" .'\"[]()")
    if len(plain) > _LONGEST_MOVES or _MOVES.fullmatch(plain) is None:
        return None
    return "".join(_LETTER_OF_ARROW.get(move, move[0].upper()) for move in _MOVE.findall(plain))


def _plain_number(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{Decimal(value.numerator) / Decimal(value.denominator):f}"


GRADERS: dict[Grader, Callable[[str, Key], Grade]] = {
    "number": grade_number,
    "time": grade_time,
    "text": grade_text,
    "moves": grade_moves,
    "point": grade_point,
}


def graded(reply: str, grader: Grader, key: Key) -> Grade:
    answer = final_answer(reply)
    return GRADERS[grader](answer, key) if answer else NO_ANSWER

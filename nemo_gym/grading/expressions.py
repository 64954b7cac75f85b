"""Compare the mathematical answer in a text with the expected one: exactly if possible, else with math-verify."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from nemo_gym.errors import LaunchError
from nemo_gym.grading.angles import in_radians
from nemo_gym.grading.conclusions import concluded
from nemo_gym.grading.numbers import (
    CHANGES_VALUE,
    SCALES,
    Number,
    exact_decimals,
    number_in,
    same_number,
    without_spelled_value,
)
from nemo_gym.grading.sets import JUNCTIONS, RELATIONS, as_intervals, as_list, lists_values
from nemo_gym.grading.text import last_boxes, normalised, strip_reasoning, unwrapped
from nemo_gym.grading.units import read_unit, same_unit, unit_at_end
from nemo_gym.grading.workers import WorkerCrashed, WorkerPool, WorkerTimedOut

LIBRARY = "math_verify"
DEADLINE_S = 2.0
MEMORY_LIMIT_BYTES = 4 << 30
LONGEST_TEXT = 20_000
"""The number of characters at the end of a text in which to look for the answer."""
LONGEST_ANSWER = 200
"""A text without a marked answer is itself the answer if it is a number of at most this many characters."""
LONGEST_EXPRESSION = 2_000
"""The maximum length, in characters, of an answer that math-verify compares. A longer one could block a worker."""

_OPEN_BOX = re.compile(r"\\boxed\s*\{")
_HASHES = re.compile(r"^####(.*\S)", re.MULTILINE)
_MATHEMATICAL = re.compile(r"[\d$\\]")
"""A digit, dollar sign or LaTeX command. math-verify finds nothing in a text without one."""
_SPACE = re.compile(r"\s+|\\[,;:! ]")
_RELATION = re.compile(
    rf"\\(?:{'|'.join((RELATIONS | JUNCTIONS).values())}|not|neg|lnot|ll|gg|nless|ngtr|to|mapsto|implies|iff|"
    rf"(?:long)?rightarrow|(?:Long)?[Rr]ightarrow|or)(?![A-Za-z])|[{''.join(RELATIONS | JUNCTIONS)}¬→⇒]"
)
"""A symbol of negation, inequality, implication or choice. math-verify ignores it and compares the number after it."""
_LIMITED = re.compile(
    r"\b(?:except|without|least|most|more|less|greater|fewer|above|below|under|over|than)\b|\"\s*:", re.IGNORECASE
)
"""A word that limits a value, as in "at least 5", or a key of JSON. math-verify ignores both."""
_CHOICE = re.compile(
    r"(?<![\\A-Za-z])or(?![A-Za-z])|(?:(?<![\\A-Za-z])(?:maybe|perhaps|possibly|alternatively|versus|vs|oder|ou|oppure|"
    r"eller|lub|albo|nebo|vagy|veya|или)(?![A-Za-z])|或者|または)(?=[^\d\\]{0,60}[\d\\])",
    re.IGNORECASE,
)
"""A word that offers another value, as in `5 \\text{ maybe } 6`. math-verify ignores such words."""
_ASIDE = re.compile(r"\(\s*or(?![A-Za-z])", re.IGNORECASE)
_BRACKETED = re.compile(r"[(\[][^()\[\]]*[)\]]")
_LIST = re.compile(r",|\\pm|±|(?<![\\A-Za-z])(?:or|and)(?![A-Za-z])", re.IGNORECASE)
_BASE = re.compile(r"(?<![A-Za-z\d])[\dA-F]*\d\s*\)?\s*_\s*(?:\{([^{}]*)\}|(\w))")
"""A number with a base, such as `101_2`. math-verify ignores the base."""
_EQUALS = re.compile(r"(?<![<>!:\\])=")
_APPROXIMATES = re.compile(r"\\approx(?:eq)?(?![A-Za-z])|≈")
_NUMERAL = re.compile(r"\d+(?:[.,]\d+)*")
_GROUPED = re.compile(r"(?<![\d.,(\[])\d{1,3}(?:,\d{3})+(?![\d,])")
"""A number with thousands separators. math-verify would parse it as a list."""
_UNBRACED = re.compile(r"(\\[dt]?frac)\s*(\\pi(?![A-Za-z])|\d)\s*(\\pi(?![A-Za-z])|\d)")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
PROSE_WORDS = 3
"""An expected answer of at least this many words is a statement, not an expression. math-verify is not used for
statements, because it would compare only the formulas in them."""
_NOTE = re.compile(
    r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}(?:\s*\^\s*\{?\s*\d\s*\}?)?|\\[lc]?dots(?![A-Za-z])|\.\.\.|…|[(){}\[\]]"
)
"""A unit, another text, an ellipsis or brackets around a rounded number."""
_TRAILING_ZEROS = re.compile(r"0*\Z")
CONVERTED_UNITS = frozenset(("degree", "rad", "radian", "hour", "minute", "min", "second"))
"""Units into which an answer may convert its value after `≈`."""
_SCALED = re.compile(rf"(?<![\\A-Za-z]){SCALES}(?![A-Za-z])", re.IGNORECASE)
MOST_RELATIVE_DIFFERENCE = 5e-4
"""The largest difference of two equal values, relative to the larger one: four significant digits are right."""
_COMMAND = re.compile(r"\\(?:text|mathrm|mbox|textbf)\s*\{[^{}]*\}|\\[A-Za-z]+")


class Comparison(NamedTuple):
    """The result of comparing an answer with the expected one."""

    is_equal: bool
    extracted: str | None
    """The answer as extracted from the text, or None if the text has no answer."""
    undecided: str | None = None
    """The reason why math-verify did not decide, such as a timeout. In this case `is_equal` is False."""


class MathEquality:
    """A comparison of answers by exact arithmetic, or else by math-verify in workers that can be killed.

    `deadline_s` is the timeout of one math-verify comparison in seconds. There is one worker per core, but at most
    `max_workers`. Workers start when first needed. The constructor raises `LaunchError` if math-verify is not
    installed.
    """

    def __init__(self, *, max_workers: int | None = None, deadline_s: float = DEADLINE_S) -> None:
        if importlib.util.find_spec(LIBRARY) is None:
            raise LaunchError("math-verify is needed to compare expressions. Install it: pip install 'nemo-gym[math]'")
        cores = os.cpu_count() or 1
        size = min(cores, max_workers) if max_workers else cores
        self._workers = WorkerPool(size, deadline_s, prepare=prepare_worker, memory_limit_bytes=MEMORY_LIMIT_BYTES)

    async def compare(self, expected: str, text: str) -> Comparison:
        """Compare the answer in a text with the expected one.

        The answer is the first of these that exists: the content of the last `\\boxed{…}`, the text after `####`, the
        whole text if it is a number, or the only value that the last sentence states. If boxes are joined, for example
        by "or", each must equal the expected answer, or all together must equal the expected list. A text whose only
        box is not closed was truncated, so it has no answer.
        """
        answers = _answers_in(strip_reasoning(text)[-LONGEST_TEXT:])
        if not answers:
            return Comparison(False, None)
        for answer in answers:
            compared = await self._compare_answer(expected, answer)
            if not compared.is_equal:
                break
        if compared.is_equal or len(answers) == 1:
            return compared
        # The boxes do not all have the expected value, so compare them as one list.
        return await self._compare_answer(expected, ", ".join(answers))

    async def _compare_answer(self, expected: str, answer: str) -> Comparison:
        if _bare(expected) == _bare(answer) != "" or normalised(expected) == normalised(answer) != "":
            return Comparison(True, answer)
        answer = without_spelled_value(answer).strip()
        compared = await self._compare_meaning(*in_radians(expected, answer))
        return compared._replace(extracted=answer)

    async def _compare_meaning(self, expected: str, answer: str) -> Comparison:
        decided = same_number(expected, answer)
        if decided is not None:
            return Comparison(decided, answer)
        one, other = as_intervals(expected), as_intervals(answer)
        if one and other:
            if one == other or not one.can_equal(other):
                return Comparison(one == other, answer)
            compared = await self._in_worker(compare_by_library, one.latex, boxed(other.latex))
            return compared._replace(extracted=answer)
        if (one and lists_values(answer)) or (other and lists_values(expected)):
            return Comparison(False, answer)
        if (listed := as_list(answer)) and not _EQUALS.search(expected):
            return (await self._compare_value(expected, listed))._replace(extracted=answer)
        if _says_something_else(expected, answer) or _has_another_unit(expected, answer):
            return Comparison(False, answer)
        for part in (answer, *_constants(expected, answer)):
            compared = await self._compare_value(expected, part)
            if not compared.is_equal:
                return Comparison(False, answer, compared.undecided)
        for part in _approximations(expected, answer):
            compared = await self._compare_value(expected, part)
            if not compared.is_equal:
                compared = await self._in_worker(compare_rounded, expected, part)
            if not compared.is_equal:
                return Comparison(False, answer, compared.undecided)
        return Comparison(True, answer)

    async def _compare_value(self, expected: str, answer: str) -> Comparison:
        decided = same_number(expected, answer)
        if decided is not None:
            return Comparison(decided, answer)
        if not _may_equal(expected, answer):
            return Comparison(False, answer)
        # math-verify knows only the command.
        number = number_in(expected)
        if number and _SCALED.search(expected):
            expected = rf"\frac{{{number.value.numerator}}}{{{number.value.denominator}}}"
        return await self._in_worker(compare_by_library, expected, boxed(answer.replace("≈", r"\approx ")))

    async def _in_worker(self, compare: Callable[[str, str], Comparison], expected: str, text: str) -> Comparison:
        try:
            return await self._workers.run(compare, expected, text)
        except (WorkerTimedOut, WorkerCrashed) as error:
            return Comparison(False, text, undecided=str(error))

    def close(self) -> None:
        """Kill the workers. A later comparison starts new ones."""
        self._workers.close()


def boxed(answer: str) -> str:
    r"""Return the answer wrapped in `\boxed{…}`, which math-verify prefers over other notations."""
    return rf"\boxed{{{answer}}}"


def prepare_worker() -> None:
    """Import math-verify and build its grammar, so that this time does not count towards a comparison's timeout."""
    # Hide the library's warning that it runs without a timeout, because the worker has a timeout.
    logging.getLogger(LIBRARY).setLevel(logging.ERROR)
    compare_by_library(r"\frac{1}{2}", r"\boxed{0.5}")


def compare_by_library(expected: str, text: str) -> Comparison:
    """Compare two texts with math-verify. Call this function in a worker, because it may never return."""
    library = importlib.import_module(LIBRARY)
    latex, plain = library.LatexExtractionConfig(), library.ExprExtractionConfig()
    gold = _evaluated(library.parse(boxed(_readable(expected)), [latex], parsing_timeout=None))
    given = _readable(text)
    # In a text that is not LaTeX, such as `6 | 5`, math-verify would take the last of several plain numbers.
    configs = [latex] if len(_NUMERAL.findall(given)) > 1 else [plain, latex]
    found = _evaluated(library.parse(given, configs, parsing_timeout=None))
    if not found:
        return Comparison(False, None)
    is_equal = bool(library.verify(gold, found, timeout_seconds=None)) and _are_close(gold[0], found[0])
    return Comparison(is_equal, str(found[-1]))


def _evaluated(parsed: list[Any]) -> list[Any]:
    """Replace an intersection or difference of sets by its value. Return an empty list for a contradiction.

    A contradiction such as `x < 1 and x > 3` is often meant as a union, so it does not equal the empty set.
    """
    sympy = importlib.import_module("sympy")
    if not parsed or not isinstance(parsed[0], (sympy.Union, sympy.Intersection, sympy.Complement)):
        return parsed
    value = parsed[0].doit()
    return [] if value is sympy.EmptySet else [value, *parsed[1:]]


def _are_close(one: Any, other: Any) -> bool:
    """Return whether the constants in two values differ by a small part of themselves.

    math-verify rounds to six decimal places, so it takes all tiny values for zero. Rational numbers must be equal.
    """
    ours, theirs = (sorted(_numbers_of(value), key=_real_and_imaginary) for value in (one, other))
    return len(ours) != len(theirs) or all(map(_is_close, ours, theirs))


def _real_and_imaginary(number: Any) -> list[float]:
    return [float(part) for part in number.evalf(30).as_real_imag()]


def _numbers_of(value: Any) -> list[Any]:
    """Return a number itself, or the numbers in a tuple, set, interval or matrix."""
    sympy = importlib.import_module("sympy")
    if isinstance(value, sympy.Expr) and not isinstance(value, sympy.MatrixExpr):
        return [value.doit()] if value.is_number else []
    if isinstance(value, sympy.MatrixBase):
        return [number for entry in value for number in _numbers_of(entry)]
    if isinstance(value, (sympy.Set, sympy.Tuple, sympy.core.relational.Relational)):
        return [number for part in value.args for number in _numbers_of(part)]
    return []


def _is_close(one: Any, other: Any) -> bool:
    sympy = importlib.import_module("sympy")
    if one == other or all(isinstance(number, sympy.Rational) for number in (one, other)):
        return bool(one == other)
    one, other = one.evalf(30), other.evalf(30)
    return bool(abs(one - other) <= MOST_RELATIVE_DIFFERENCE * max(abs(one), abs(other)))


def compare_rounded(expected: str, text: str) -> Comparison:
    """Return whether a value is approximately the expected one.

    A decimal number may differ by less than one unit of its last written digit, and a whole number with final zeros by
    half a unit of its last other digit. Other values, such as fractions, may differ by half a percent. A value that
    cannot be computed or that has another unit, such as minutes instead of hours, counts as equal.

    Call this function in a worker, because math-verify may never return.
    """
    exact = number_in(expected)
    value = _value_by_library(expected) if exact is None else _share(exact)
    rounded = number_in(text) or number_in(_NOTE.sub(" ", text))
    if (
        rounded is not None
        and rounded.unit.removesuffix("s") in CONVERTED_UNITS
        and (exact is None or exact.unit != rounded.unit)
    ):
        return Comparison(True, text)
    found = _value_by_library(text) if rounded is None else _share(rounded)
    if value is None or found is None:
        return Comparison(True, text)
    return Comparison(abs(value - found) < (_unit_of(rounded) or abs(value) / 200), text)


def _unit_of(rounded: Number | None) -> Fraction | None:
    """Return the largest possible error of a rounded number, or None if the number is not written in digits."""
    if rounded is None:
        return None
    digits = rounded.value * Fraction(10) ** rounded.decimals
    if digits.denominator != 1:
        return None
    unit = Fraction(10) ** -rounded.decimals
    if rounded.decimals == 0:
        zeros = len(_TRAILING_ZEROS.search(str(digits.numerator))[0])  # type: ignore[index]
        unit *= Fraction(10**zeros, 2) if zeros else 1
    return unit / 100 if rounded.is_percent else unit


def _share(number: Number) -> Fraction:
    return number.value / 100 if number.is_percent else number.value


def _value_by_library(expression: str) -> Fraction | None:
    """Return the value of an expression. Return None if it is not a single real number."""
    library = importlib.import_module(LIBRARY)
    found = library.parse(boxed(_readable(expression)), [library.LatexExtractionConfig()], parsing_timeout=None)
    try:
        return Fraction(float(found[0]))
    except (IndexError, TypeError, ValueError, OverflowError):
        return None


def _answers_in(text: str) -> list[str]:
    boxes = last_boxes(text)
    if boxes or _OPEN_BOX.search(text):
        return [box.strip() for box in boxes]
    after_hashes = _HASHES.findall(text)
    if after_hashes:
        return [str(after_hashes[-1]).strip()]
    if len(text) <= LONGEST_ANSWER and number_in(text):
        return [text]
    stated = concluded(text)
    return [] if stated is None else [stated]


def _readable(text: str) -> str:
    r"""Prepare a text for math-verify, which cannot read `1,000`, `0.\overline{3}` and `\frac\pi4`."""
    return exact_decimals(_GROUPED.sub(lambda number: number[0].replace(",", ""), _UNBRACED.sub(r"\1{\2}{\3}", text)))


def _says_something_else(expected: str, answer: str) -> bool:
    """Return whether the answer has a word or symbol that math-verify ignores, and that the expected answer lacks.

    Such a word or symbol changes the value of the answer.
    """
    if any(mark.search(answer) and not mark.search(expected) for mark in (_RELATION, _LIMITED, CHANGES_VALUE, _ASIDE)):
        return True
    if _CHOICE.search(answer) and not _LIST.search(_BRACKETED.sub("", _readable(expected))):
        return True
    bases = _bases(answer)
    return bool(bases) and bases != _bases(expected)


def _has_another_unit(expected: str, answer: str) -> bool:
    """Return whether the units at the end of two expressions differ, or only the expected one has a scale word."""
    units = [unit_at_end(text[-LONGEST_ANSWER:]) for text in (expected, answer)]
    if all(map(read_unit, units)) and same_unit(*units) != 1:
        return True
    return bool(_SCALED.search(expected)) and not _SCALED.search(answer) and number_in(expected) is None


def _bases(text: str) -> set[str]:
    return {unwrapped(one or other) for one, other in _BASE.findall(text)}


def _constants(expected: str, answer: str) -> list[str]:
    """Return the constant sides of an answer that is an equation, because each of them must equal the expected value.

    If the expected answer is also an equation, return an empty list.
    """
    sides = _EQUALS.split(answer)
    if len(sides) == 1 or _EQUALS.search(expected):
        return []
    return [side for side in sides if _is_constant(side)]


def _approximations(expected: str, answer: str) -> list[str]:
    """Return the constant values after the signs `≈` of an answer. Each must equal the expected value or its rounding.

    If the expected answer also has such a sign, or is a list, return an empty list.
    """
    if _APPROXIMATES.search(expected) or _LIST.search(_readable(expected)):
        return []
    sides = [_EQUALS.split(side)[0] for side in _APPROXIMATES.split(answer)[1:]]
    return [side for side in sides if _is_constant(side) or number_in(side) is not None]


def _is_constant(side: str) -> bool:
    plain = _COMMAND.sub(" ", side)
    return re.search(r"\d", plain) is not None and re.search("[A-Za-z]", plain) is None


def _may_equal(expected: str, answer: str) -> bool:
    """Return whether a comparison by math-verify could succeed."""
    if not answer or len(answer) > LONGEST_EXPRESSION:
        return False
    if number_in(expected) is not None:
        return _MATHEMATICAL.search(answer) is not None
    return len(_WORD.findall(expected)) < PROSE_WORDS


def _bare(text: str) -> str:
    return _SPACE.sub("", unwrapped(text))

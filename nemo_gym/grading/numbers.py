r"""Parse numbers in plain text or LaTeX, and compare them exactly.

Accepts `1,234.50`, `1 234.50`, `-3/4`, `1 1/2`, `\frac{3}{4}`, `2\frac{1}{2}`, `1.5 \times 10^{3}`, `6e-4`, `25\%` and
`\$18`.
Any of them can be followed by a unit in words: `18 dollars`, `5\text{ km/h}`, `90^\circ`.
Words that negate a number, calculate with it or scale it, such as "million", are not accepted as a unit.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

LONGEST = 200
"""The maximum number of characters. A longer text is not treated as a number."""
LARGEST_EXPONENT = 300
ROUNDED_DIGITS = 6
"""The minimum number of decimal places of a number that is treated as rounded."""
SIGNIFICANT_DIGITS = 4
"""The minimum number of significant digits of a number that is treated as rounded."""
SCALES = (
    r"dozens?|hundreds?|thousands?|[mb]illions?|trillions?|quadrillions?|lakhs?|lacs?|crores?|myriads?|"
    r"mille|permille|basis\s+points?|half|(?:fif|six|seven|eigh|nin|ten|hundred|thousand)ths"
)
"""Words that multiply the number before them, as alternatives for a regex."""
NUMBER_WORDS = (
    r"(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty)"
)
CHANGES_VALUE = re.compile(
    r"(?<![\\A-Za-z])(?:not|no|nope|never|cannot|wrong|incorrect|false|invalid|plus|minus|negative|doubled|tripled|"
    r"halved|factorial|(?:divided|multiplied)\s+by|(?<![A-Za-z] )(?:squared|cubed)|"
    rf"{SCALES}|(?<!\bin )(?<!\bfor )(?<!\bper )(?<![-(]){NUMBER_WORDS}(?!-(?!{NUMBER_WORDS})))(?![A-Za-z])|n['’]t\b",
    re.IGNORECASE,
)
"""Words that change or reject a number, such as "million" or "not". Excludes the "two" in `$5 for two tickets`."""

_SPACE = re.compile(r"\\[,;:!> ]|\\q?quad(?![A-Za-z])|~")
_DROPPED = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\?\$|[€£¥]|\{\}|\\[()\[\]]")
_TEXT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_SPACE_BEFORE_POWER = re.compile(r"\s+(?=\^)")
_COMMA = re.compile(r"\{,\}")
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_POWER = re.compile(r"\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|([-+]?\d+))")
_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree|°")
_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACED_GROUPS = re.compile(r"(?<![\d.,])(?<!\d )\d{1,3}(?: \d{3})+(?![\d,]| ?[\d/])")
_IN_ASCII = {0x2212: "-", 0x2013: "-", 0xA0: " ", 0x2007: " ", 0x2009: " ", 0x202F: " "}
"""Minus signs and the spaces of fixed width that separate thousands."""
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s*(?:(?P<whole>\d+)\s+(?P<part>\d+)\s*/\s*(?P<of>\d+)"
    rf"|(?P<over>{_DIGITS})\s*/\s*(?P<under>{_DIGITS})"
    rf"|(?P<decimal>{_DIGITS})(?:[eE](?P<exponent>[-+]?\d+))?)"
    r"\s*(?P<percent>%|per\s?cent(?![a-z]))?(?P<unit>\s.*|)",
    re.DOTALL,
)
_UNIT = re.compile(r"degrees?|[^\W\d_]{2,}(?:[ /.-]+[^\W\d_]+)*(?:\^?\{?[23]\}?)?")
_NO_UNIT = re.compile(
    r"\b(?:a?r?c?(?:sin|cos|tan|cot|sec|csc)h?|pi|sqrt|ln|log|exp|mod|inf|infty|infinity|and|or|but|except|to|over|of|"
    r"is|are|was|were|equals?|halves|thirds?|quarters?|[mbt]n|[mb]ln|"
    r"oder|ou|oppure|eller|lub|albo|nebo|vagy|veya|или|或者|または)\b"
)
"""Words that cannot be part of a unit. They include "or" in several languages, because it offers alternatives."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Number(NamedTuple):
    """A parsed number, with its unit and the number of decimal places that were written."""

    value: Fraction
    """The written value, which is 25 for `25%`."""
    is_percent: bool
    unit: str
    """The unit in lower case and without a plural s, or an empty string."""
    decimals: int
    """The number of decimal places. It is negative if the last written digit has a higher place value than 1."""


def number_in(text: str) -> Number | None:
    """Parse a text that is one number, with an optional unit and currency sign. Return None for any other text."""
    if len(text) > LONGEST:
        return None
    parts = _NUMBER.fullmatch(_without_latex(text))
    if parts is None:
        return None
    unit = parts["unit"].strip(" .").lower()
    if unit and (_UNIT.fullmatch(unit) is None or _NO_UNIT.search(unit) or CHANGES_VALUE.search(unit)):
        return None
    try:
        value = _value(parts)
    except (ValueError, ZeroDivisionError):
        return None
    return Number(value, parts["percent"] is not None, unit.removesuffix("s"), _decimals(parts))


def same_number(expected: str, answer: str) -> bool | None:
    """Return whether two texts denote the same number, or None if one is not a number or their units differ.

    A unit or percent sign that only one text has is ignored: `18` equals `18 dollars`, and `25%` equals `25` and
    `0.25`.
    A number with at least six decimal places and four significant digits equals any number that rounds to it.
    """
    one, other = number_in(expected), number_in(answer)
    if one is None or other is None or (one.unit and other.unit and one.unit != other.unit):
        return None
    if one.is_percent != other.is_percent:
        percent, plain = (one, other) if one.is_percent else (other, one)
        return plain.value in (percent.value, percent.value / 100)
    return one.value == other.value or _rounds_to(one, other) or _rounds_to(other, one)


def has_asked_unit(number: Number, expected: Number, question: str) -> bool:
    """Return whether the words of a number's unit are all in the expected number's unit or in the question.

    Only sentences that end in a question mark count as the question. So `6 crates` answers "How many crates are
    there?", but `6 twice`, `6 aut septem` and `6%` do not.
    """
    asked = " ".join(sentence for sentence in _SENTENCE_END.split(question) if sentence.endswith("?"))
    return _unit_words(number) <= _unit_words(expected) | _words(asked)


def _unit_words(number: Number) -> set[str]:
    return _words(number.unit) | ({"percent"} if number.is_percent else set())


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"\w+", text.lower())}


def _rounds_to(exact: Number, rounded: Number) -> bool:
    if rounded.decimals < ROUNDED_DIGITS:
        return False
    digits = len(str(abs(int(rounded.value * 10**rounded.decimals))))
    return digits >= SIGNIFICANT_DIGITS and round(exact.value, rounded.decimals) == rounded.value


def _without_latex(text: str) -> str:
    """Replace LaTeX notation of numbers with plain text."""
    plain = _SPACE_BEFORE_POWER.sub("", _TEXT.sub(r" \1 ", _COMMA.sub(",", text))).translate(_IN_ASCII)
    plain = _DEGREE.sub(" degrees ", _FRACTION.sub(_as_division, plain))
    plain = _POWER.sub(lambda power: f"e{power[1] or power[2]}", plain).replace("\\%", "%")
    plain = _SPACE.sub("", _DROPPED.sub("", plain))
    plain = _SPACED_GROUPS.sub(lambda group: group[0].replace(" ", ""), plain)
    return _GROUPS.sub(lambda group: group[0].replace(",", ""), plain).strip().removesuffix(".").strip()


def _as_division(fraction: re.Match[str]) -> str:
    return f" {fraction[1] or fraction[2]}/{fraction[3] or fraction[4]} "


def _value(parts: re.Match[str]) -> Fraction:
    if parts["whole"]:
        value = int(parts["whole"]) + Fraction(int(parts["part"]), int(parts["of"]))
    elif parts["over"]:
        value = Fraction(parts["over"]) / Fraction(parts["under"])
    else:
        exponent = int(parts["exponent"] or 0)
        if abs(exponent) > LARGEST_EXPONENT:
            raise ValueError("the power of ten is too large")
        value = Fraction(parts["decimal"]) * Fraction(10) ** exponent
    return -value if parts["sign"] == "-" else value


def _decimals(parts: re.Match[str]) -> int:
    written = len((parts["decimal"] or "").partition(".")[2])
    return written - int(parts["exponent"] or 0)

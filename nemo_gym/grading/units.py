"""Read the unit after a number, and compare units."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MEASURES = {
    "length": "1e-6 micrometer micrometre µm|0.001 millimeter millimetre mm|0.01 centimeter centimetre cm"
    "|0.1 decimeter decimetre dm|1 meter metre m|1000 kilometer kilometre km|0.0254 inch inches in."
    "|0.3048 foot feet ft|0.9144 yard yd|1609.344 mile mi",
    "time": "0.001 millisecond ms|1 second sec s sekunde sekunden seconde segundo|60 minute min minuto minuten"
    "|3600 hour hr h stunde stunden heure hora|86400 day tag tage jour día|604800 week wk woche wochen semaine semana",
    "months": "1 month mo monat monate mois mes|12 year yr jahr jahre an année año",
    "mass": "0.001 milligram mg|1 gram g gramm|1000 kilogram kg kilo|1e6 tonne t|28.349523125 ounce oz"
    "|453.59237 pound lb £",
    "volume": "0.001 milliliter millilitre ml cc|1 liter litre l|3.785411784 gallon gal|0.946352946 quart qt"
    "|0.473176473 pint pt",
    "money": "0.01 cent ¢|1 dollar usd $ buck",
    "euro": "1 euro eur €",
    "yen": "1 yen jpy ¥",
    "rupee": "1 rupee inr ₹",
    "penny": "1 penny pennies pence p",
    "angle": "1 degree deg grad",
    "radian": "1 radian rad",
    "celsius": "1 celsius",
    "fahrenheit": "1 fahrenheit",
    "morning": "1 a.m am",
    "afternoon": "1 p.m pm",
    "energy": "1 joule j|1000 kilojoule kj",
    "force": "1 newton n",
    "power": "1 watt w|1000 kilowatt kw",
    "voltage": "1 volt v",
    "unit": "1 unit",
}
"""The known units of each dimension: their size in the dimension's basic unit, and their names."""
_SIZES = {
    name: (dimension, Fraction(size))
    for dimension, table in _MEASURES.items()
    for size, *names in (row.split() for row in table.split("|"))
    for name in names
}
_SPEEDS = {"mph": "mile per hour", "kph": "km per hour", "kmh": "km per hour", "mpg": "mile per gallon"}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "squared": 2, "cubed": 3}
_PER = _names("per / a an each every")
_PLURALS = _names(
    "people persons children men women feet teeth mice geese fish sheep deer fruit cattle oxen dice leaves fries"
)
_NO_PLURALS = _names(
    "is was has does perhaps always sometimes besides afterwards fails exceeds works this its yes sans halves"
)
_TAILS = _names(
    "in at on for per each every to from of with after during by left more total altogether away old long wide high "
    "tall deep ago later now remaining again today tomorrow extra among across because since as when so spent needed "
    "available overall combined daily weekly monthly yearly here there this that shorter longer taller older younger "
    "heavier lighter faster slower farther further apart back"
)
"""Words that can begin the rest of a sentence after a unit, as in `5 apples in each box`."""
_WORD = re.compile(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*\.?|[$£€¥₹¢µ°/]|\^\s*\{?\s*(-?\d)\s*\}?|\d")
_DEGREES = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°")
_INCHES = re.compile(r"\A\s*in(?=\s*(?:\^|\.?\s*\Z))")
_SUPERSCRIPTS = str.maketrans({"²": "^2", "³": "^3"})

_UNIT_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textrm|textbf|operatorname)\s*\{([^{}]*)\}")
_UNIT_AT_END = re.compile(
    rf"(?:(?:{_UNIT_TEXT.pattern}|\^\s*\{{?\s*\\circ\s*\}}?|°|(?<![\\A-Za-z])[A-Za-z]{{2,}})"
    r"(?:\s*\^\s*\{?\s*-?\d\s*\}?)?[\s/~.]*)+\Z"
)


class Unit(NamedTuple):
    """A unit of known dimensions, such as the square meter."""

    dimensions: frozenset[tuple[str, int]]
    """Each dimension with its exponent."""
    size: Fraction
    """The size in basic units."""


def read_unit(text: str) -> Unit | None:
    """Return the unit that a text begins with, such as `km/h` or `square feet of grass`, or None for other texts."""
    exponents: dict[str, int] = {}
    size, sign, power = Fraction(1), 1, 1
    last: tuple[str, Fraction, int] | None = None
    for word, digit in _words(text):
        known = _SIZES.get(word) or _SIZES.get(_singular(word))
        if known and (last is None or sign < 0 or power != 1):
            last = (*known, sign * power)
            sign, power = 1, 1
        elif word in _PER and last:
            sign = -1
            continue
        elif word in ("squared", "cubed") or digit:
            if last is None:
                return None
            extra = abs(last[2]) // last[2] * ((int(digit) if digit else _POWERS[word]) - abs(last[2]))
            last = (last[0], last[1], extra)
        elif word in _POWERS and (last is None or sign < 0):
            power = _POWERS[word]
            continue
        else:
            break
        exponents[last[0]] = exponents.get(last[0], 0) + last[2]
        size *= last[1] ** last[2]
    return Unit(frozenset(exponents.items()), size) if exponents else None


def same_unit(one: str, other: str) -> Fraction | None:
    """Return how many of the second unit are one of the first, or None if they are of different kinds.

    The words of other units, such as `slices of pizza`, must contain those of the other text.
    """
    left, right = read_unit(one), read_unit(other)
    if left and right:
        return _ratio(left, right)
    if left or right:
        return None
    words, others = ({_singular(word) for word, _ in _words(text)} for text in (one, other))
    return Fraction(1) if words <= others or others <= words else None


def unit_at_end(text: str) -> str:
    r"""Return the unit at the end of an expression as plain text: `cm` of `2\sqrt{13}\text{ cm}`."""
    found = _UNIT_AT_END.search(text)
    return _UNIT_TEXT.sub(r" \1 ", found[0]) if found else ""


def is_usual(text: str) -> bool:
    """Return whether a text can follow a number without changing it: `red apples`, `km/h in town` or `in total`.

    It is a known unit or a plural, possibly after one or two adjectives, or a phrase that begins with a word such as
    "in". Other single words, such as "maybe", are not usual.
    """
    words = [word for word, _ in _words(text)]
    if not words or read_unit(text) or words[0] in _TAILS | _PER:
        return True
    for place, word in enumerate(words[:3]):
        if _is_plural(word):
            rest = words[place + 1 :]
            return word != "times" or not rest or rest[0] in _TAILS
        if word in _TAILS:
            return False
    return False


def _words(text: str) -> list[tuple[str, str | None]]:
    """Return the words of a text in lower case, each with the exponent that it is, if any."""
    plain = text.translate(_SUPERSCRIPTS).lower()
    plain = _DEGREES.sub(" degrees ", plain)
    plain = _INCHES.sub("inch", plain)
    plain = re.sub(r"\bdegrees?\s+(c|f)\b|\bdegrees?\s+(?=celsius|fahrenheit)", _temperature, plain)
    return [
        (word if word in _SIZES else word.rstrip("."), match[1])
        for match in _WORD.finditer(plain)
        for word in [_SPEEDS.get(match[0], match[0])]
        for word in word.split()
    ]


def _temperature(match: re.Match[str]) -> str:
    return {"c": "celsius", "f": "fahrenheit", None: ""}[match[1]]


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > 2 else word


def _is_plural(word: str) -> bool:
    ends = word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2
    return word in _PLURALS or (ends and word not in _NO_PLURALS)


def _ratio(one: Unit, other: Unit) -> Fraction | None:
    if one.dimensions == other.dimensions:
        return one.size / other.size
    # "Units" and "square units" may be any lengths and areas.
    powers = [sorted(power for _, power in each.dimensions) for each in (one, other)]
    is_any = any({name for name, _ in each.dimensions} == {"unit"} for each in (one, other))
    return Fraction(1) if is_any and powers[0] == powers[1] else None

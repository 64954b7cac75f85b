"""Numbers that a plain schema allows."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import NamedTuple

from responses_api_models.sample_model.json_schema.merging import Plain
from responses_api_models.sample_model.json_schema.references import SchemaError
from responses_api_models.sample_model.json_schema.validity import exact

REACH = 100
"""A number bounded on one side only is drawn at most this far from its bound."""
TRIES = 60


class Range(NamedTuple):
    """Both bounds of a number, and which of them it may not equal."""

    low: Fraction
    high: Fraction
    without_low: bool = False
    without_high: bool = False

    def holds(self, number: Fraction) -> bool:
        """Whether the number is within the bounds."""
        above = self.low < number if self.without_low else self.low <= number
        return above and (number < self.high if self.without_high else number <= self.high)


def _range(plain: Plain, step: Fraction) -> Range:
    lows = [(exact(plain[word]), word != "minimum") for word in ("minimum", "exclusiveMinimum") if word in plain]
    highs = [(exact(plain[word]), word == "maximum") for word in ("maximum", "exclusiveMaximum") if word in plain]
    reach = REACH * max(step, Fraction(1))
    if not lows and not highs:
        return Range(Fraction(0), reach)
    if not highs:
        low, without_low = max(lows)
        return Range(low, low + reach, without_low)
    high, with_high = min(highs)
    if not lows:
        return Range(Fraction(0) if high > 0 else high - reach, high, False, not with_high)
    low, without_low = max(lows)
    return Range(low, high, without_low, not with_high)


def _multiple(span: Range, step: Fraction, rng: Random) -> Fraction | None:
    """A multiple of `step` within the bounds; None where there is none."""
    first, last = math.ceil(span.low / step), math.floor(span.high / step)
    first += span.without_low and first * step == span.low
    last -= span.without_high and last * step == span.high
    return rng.randint(first, last) * step if first <= last else None


def sample_integer(plain: Plain, rng: Random, at: str) -> int:
    """An integer within the bounds; bounds that are open end at `REACH` steps."""
    # The integers among the multiples of 5/2 are the multiples of 5.
    step = Fraction(exact(plain.get("multipleOf", 1)).numerator)
    number = _multiple(_range(plain, step), step, rng)
    if number is None:
        raise SchemaError(at, "no integer lies within its bounds")
    return int(number)


def sample_number(plain: Plain, rng: Random, at: str) -> float:
    """A number within the bounds, of two decimals where they leave room for it."""
    if "multipleOf" in plain:
        step = exact(plain["multipleOf"])
        number = _multiple(_range(plain, step), step, rng)
        if number is None:
            raise SchemaError(at, "no multiple of its multipleOf lies within its bounds")
        return int(number) if number.denominator == 1 else float(number)
    span = _range(plain, Fraction(1))
    number = _multiple(span, Fraction(1, 100), rng)
    if number is not None and span.holds(exact(float(number))):
        return float(number)
    for _ in range(TRIES):
        close = rng.uniform(float(span.low), float(span.high))
        if span.holds(exact(close)):
            return close
    for bound, other in ((span.low, span.high), (span.high, span.low)):
        for close in (float(bound), math.nextafter(float(bound), float(other))):
            if span.holds(exact(close)):
                return close
    raise SchemaError(at, "no number lies within its bounds")

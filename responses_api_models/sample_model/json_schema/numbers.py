"""Random numbers within the bounds of a schema."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.json_schema.references import SchemaError

REACH = 100
"""The default width of the range that a number is drawn from, if the schema has fewer than two bounds."""


def sample_number(schema: JsonObject, rng: Random, at: str, *, is_integer: bool) -> float:
    """Return a random number within the bounds. A non-integer has two decimals if the bounds allow that."""
    step = _exact(schema.get("multipleOf", 1 if is_integer else 0.01))
    # If `multipleOf` is a fraction, such as 5/2, integers must be multiples of its numerator.
    step = Fraction(step.numerator) if is_integer else step
    lows, highs = _bounds(schema, "minimum", "exclusiveMinimum"), _bounds(schema, "maximum", "exclusiveMaximum")
    reach = REACH * max(step, Fraction(1))
    high = min(highs)[0] if highs else None
    low = max(lows)[0] if lows else Fraction(0) if high is None or high > 0 else high - reach
    high = low + reach if high is None else high
    is_low_open, is_high_open = (low, True) in lows, (high, True) in highs
    first, last = math.ceil(low / step), math.floor(high / step)
    first += is_low_open and first * step == low
    last -= is_high_open and last * step == high
    if first <= last:
        number = rng.randint(first, last) * step
    elif is_integer or "multipleOf" in schema or low > high or (low == high and (is_low_open or is_high_open)):
        raise SchemaError(at, f"no valid {'integer' if is_integer else 'number'} is within the bounds")
    else:
        number = low + (high - low) * Fraction(rng.randint(1, 999), 1000)
    return int(number) if is_integer else float(number)


def _bounds(schema: JsonObject, inclusive: str, exclusive: str) -> list[tuple[Fraction, bool]]:
    """Return each bound, and whether it is exclusive."""
    found = [(schema.get(keyword), keyword == exclusive) for keyword in (inclusive, exclusive)]
    # In draft 4, an exclusive bound is a boolean flag. Ignore it, because invalid samples are rejected later.
    return [(_exact(bound), is_open) for bound, is_open in found if bound is not None and not isinstance(bound, bool)]


def _exact(number: float) -> Fraction:
    """Return the exact value of a number's decimal form: 0.1 is one tenth, not the nearest binary fraction."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))

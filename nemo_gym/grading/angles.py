r"""Write angles in degrees as angles in radians, so that they can be compared.

The unit decides. An angle with a degree sign or word is in degrees. An angle with "rad" or "radians", and a multiple
of π without a unit, is in radians. So `30°` equals `\pi/6` and `\pi/6` rad, but not `30` radians, and `\pi/6` is not
`(\pi/6)°`. As for other units, a missing unit does not matter to a number without π: `30` equals `30°` and `30`
radians, but not `\pi/6`.
"""

from __future__ import annotations

import re

from nemo_gym.grading.units import read_unit, unit_at_end

_TEXT = r"\\(?:text|mathrm|mbox)\s*\{"
_SPACE = r"(?:~|\\[ ,;:]|\s)*"
_MARK = (
    rf"{_SPACE}(?:\^\s*(?:\\circ(?![A-Za-z])|\{{\s*\\circ\s*\}})|°|\\degree(?![A-Za-z])"
    rf"|{_TEXT}~?\s*deg(?:rees?)?\s*\}}|(?<![\\A-Za-z])deg(?:rees?)?(?![A-Za-z]))"
    rf"(?!{_SPACE}(?:{_TEXT})?\s*(?:[CFK](?![a-z])|(?i:celsius|fahrenheit)))"
)
"""A degree sign or word, but not of a temperature."""
_DEGREES = re.compile(_MARK)
_IN_DEGREES = re.compile(
    r"(?<![\d.}^_])(\\[dt]?frac\s*(?:\{[^{}]*\}\s*\{[^{}]*\}|\d\d)|\d+(?:\.\d+)?(?:\s*/\s*\d+)?|(?:\d+(?:\.\d+)?)?(?:\\pi|π)|\([^()]*\))"
    + _MARK
)
_RADIANS = re.compile(
    rf"{_SPACE}(?:{_TEXT}~?\s*rad(?:ians?)?\s*\}}|(?<![\\A-Za-z])rad(?:ians?)?(?![A-Za-z]))", re.IGNORECASE
)
_ZERO = re.compile(r"0+(?:\.0+)?")
_TIMES_PI = re.compile(r"(?<!\}\{)(?<!/)(?:\\pi(?![A-Za-z])|π)")
"""The sign π, but not as a denominator: `180/π` is not a multiple of π."""


def in_radians(one: str, other: str) -> tuple[str, str]:
    """Return two texts with their angles in radians and without the unit, if one has degrees and one has radians.

    Return all other texts unchanged.
    """
    both = (one, other)
    if not any(map(_DEGREES.search, both)) or not any(map(_has_radians, both)):
        return both
    converted = [_RADIANS.sub("", _IN_DEGREES.sub(_converted, text)) for text in both]
    if any(_DEGREES.search(text) or read_unit(unit_at_end(text)) for text in converted):
        return both
    return converted[0], converted[1]


def _converted(angle: re.Match[str]) -> str:
    # Write zero itself, because SymPy compares an unevaluated product with zero differently from run to run.
    return "0" if _ZERO.fullmatch(angle[1]) else rf"\frac{{{angle[1]}\pi}}{{180}}"


def _has_radians(text: str) -> bool:
    return bool(_RADIANS.search(text) or _TIMES_PI.search(_IN_DEGREES.sub("", text)))

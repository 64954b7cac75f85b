"""Read numbers in English words, such as `one hundred and twenty` and `three quarters`."""

from __future__ import annotations

import re
from fractions import Fraction

_BELOW_20 = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_MULTIPLES_OF_10 = "twenty thirty forty fifty sixty seventy eighty ninety"
_ONES = {word: value for value, word in enumerate(_BELOW_20.split())}
_TENS = {word: 10 * value for value, word in enumerate(_MULTIPLES_OF_10.split(), start=2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10, "hundredth": 100,
}  # fmt: skip
NUMBER_WORDS = rf"(?:{'|'.join(sorted(_ONES | _TENS, key=len, reverse=True))})"
"""The words of the numbers below a hundred, as alternatives for a regex."""


def value_in_words(text: str) -> Fraction | None:
    """Return the value of a number in words, or None for any other text, such as `twenty ten`."""
    words = re.split(r"[\s-]+", text.strip().lower())
    if len(words) > 1 and words[0] in ("negative", "minus"):
        value = _positive(words[1:])
        return None if value is None else -value
    return _positive(words)


def _positive(words: list[str]) -> Fraction | None:
    if "point" in words:
        place = words.index("point")
        whole, digits = _whole(words[:place]), [_ONES.get(word, 10) for word in words[place + 1 :]]
        if whole is None or not digits or max(digits) > 9:
            return None
        return whole + Fraction(int("".join(map(str, digits))), 10 ** len(digits))
    part = _PARTS.get(words[-1]) or _PARTS.get(words[-1].removesuffix("s"))
    if part is None:
        return _whole(words)
    # The numerator begins after the last "and": `three and a half`.
    start = len(words) - words[::-1].index("and") if "and" in words else 0
    whole = _whole(words[: start - 1]) if start else Fraction(0)
    count = Fraction(1) if words[start:-1] in ([], ["a"]) else _whole(words[start:-1])
    return None if whole is None or count is None else whole + count / part


def _whole(words: list[str]) -> Fraction | None:
    total, group, last_scale = 0, 0, 10**15
    if len(words) > 1 and words[0] in ("a", "an"):
        words = ["one", *words[1:]]
    for place, word in enumerate(words):
        ones, tens, scale = _ONES.get(word), _TENS.get(word), _SCALES.get(word)
        if ones is not None and (not group % 10 if 0 < ones < 10 else not group % 100) and (ones or len(words) == 1):
            if group % 100 and group % 100 < 20:
                return None
            group += ones
        elif tens and not group % 100:
            group += tens
        elif word in ("hundred", "dozen") and group < 100:
            group = (group or 1) * (100 if word == "hundred" else 12)
        elif scale and scale < last_scale:
            total, group, last_scale = total + (group or 1) * scale, 0, scale
        elif word != "and" or not place or place == len(words) - 1:
            return None
    return Fraction(total + group) if words else None

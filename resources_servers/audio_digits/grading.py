"""Read the digits of an answer, and count the errors in them."""

from __future__ import annotations

import re

from nemo_gym.grading import final_answer

LONGEST = 200
"""Maximum number of characters of an answer. A longer answer counts as missing."""

_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_VALUES = {name: str(value) for value, name in enumerate(_NAMES)} | {"oh": "0", "null": "0"}
_NAME = "|".join(_VALUES)
_SEPARATOR = r"[\s,;.·‐‑–—-]"
_DIGIT = re.compile(rf"[0-9]|{_NAME}")
_DIGITS = re.compile(rf"(?:[0-9]+|{_NAME})(?:{_SEPARATOR}+(?:[0-9]+|{_NAME}))*")
_AROUND = "\"'“”‘’«»()[]<>. \t"


def digits_in(text: str) -> str | None:
    """Return the digits of a reply's final answer, or None if the answer contains anything else.

    Digits may have separators, such as `4-0 7, 1`, and may be words.
    """
    answer = (final_answer(text) or "").strip(_AROUND).lower()
    if len(answer) > LONGEST or not _DIGITS.fullmatch(answer):
        return None
    return "".join(_VALUES.get(digit, digit) for digit in _DIGIT.findall(answer))


def word_error_rate(expected: str, heard: str) -> float:
    """Return the number of substitutions, insertions and deletions that correct `heard`, per expected digit.

    The rate is above 1 if `heard` has many more digits than expected.
    """
    errors = list(range(len(heard) + 1))
    for row, digit in enumerate(expected, start=1):
        diagonal, errors[0] = errors[0], row
        for column, other in enumerate(heard, start=1):
            best = min(diagonal + (digit != other), errors[column] + 1, errors[column - 1] + 1)
            diagonal, errors[column] = errors[column], best
    return errors[-1] / len(expected)

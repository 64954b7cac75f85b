"""GSM8K's notation: calculations in double angle brackets, and the answer after four hashes."""

from __future__ import annotations

import re

ANSWER_MARK = "####"

_CALCULATION = re.compile(r"<<([^<>=]+)=[^<>]*>>")


def final_answer(solution: str) -> str:
    """Return the text after the last `####`. Raises `ValueError` if it is missing."""
    _, mark, answer = solution.rpartition(ANSWER_MARK)
    if not mark or not answer.strip():
        raise ValueError(f"answer: must end with '{ANSWER_MARK}' and the final answer")
    return answer.strip()


def calculations(solution: str) -> list[str]:
    """Return the expressions that a solution calculates, in order."""
    return [each.strip() for each in _CALCULATION.findall(solution)]

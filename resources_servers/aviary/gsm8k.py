"""GSM8K's own notation: calculations in double angle brackets, the answer behind four hashes."""

from __future__ import annotations

import re

ANSWER_MARK = "####"

_CALCULATION = re.compile(r"<<([^<>=]+)=[^<>]*>>")


def final_answer(solution: str) -> str:
    """What stands behind the last `####`. Raises `ValueError` where nothing does."""
    _, mark, answer = solution.rpartition(ANSWER_MARK)
    if not mark or not answer.strip():
        raise ValueError(f"answer: nothing stands behind '{ANSWER_MARK}', where it should end")
    return answer.strip()


def calculations(solution: str) -> list[str]:
    """The expressions that a solution calculates, in order."""
    return [each.strip() for each in _CALCULATION.findall(solution)]

"""A perfect answer to a mathematical question."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    r"""Return the expected answer in `\boxed{}`."""
    return [rf"The answer is \boxed{{{row['expected_answer']}}}."]

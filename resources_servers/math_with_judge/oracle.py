"""A perfect attempt at a mathematical question."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Give the expected answer in a box."""
    return [rf"The answer is \boxed{{{row['expected_answer']}}}."]

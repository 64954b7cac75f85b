"""A perfect answer: the expected one."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the expected answer."""
    return [f"It is {row['expected_answer']}."]

"""A perfect attempt, which replies with the expected answer."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    return [f"It is {row['expected_answer']}."]

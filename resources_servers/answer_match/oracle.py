"""A perfect answer: the expected one, in the requested form."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Answer with the expected answer, or for a pattern with the row's `example_match`."""
    # The grader of a pattern may be set by the config instead of the row.
    return [f"I have checked it.\nAnswer: {row.get('example_match') or row['expected_answer']}"]

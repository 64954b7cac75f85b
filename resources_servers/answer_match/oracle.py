"""A perfect answer: the expected one, in the requested form."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the expected answer. If that is a regex, return the row's `example_match`, which it matches."""
    # Do not check the row's `grader`, because the config may set the grader `regex` instead.
    return [f"I have checked it.\nAnswer: {row.get('example_match') or row['expected_answer']}"]

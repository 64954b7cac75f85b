"""A perfect answer: the expected answer in the requested form."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the expected answer. If it is a regex, return the row's `example_match`, a text that matches it."""
    # Do not check the row's `grader`, because the config may set the grader `regex` instead.
    return [f"I have checked it.\nAnswer: {row.get('example_match') or row['expected_answer']}"]

"""A perfect answer: the expected answer, which the judge accepts."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the expected answer in each form that the rows' regexes match."""
    answer = row["expected_answer"]
    return [f"<answer>{answer}</answer>\n\\boxed{{{answer}}}\nAnswer: {answer}"]

"""A perfect answer to a question whose answer is judged."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the expected answer in each form that the rows' patterns match."""
    answer = row["expected_answer"]
    return [f"<answer>{answer}</answer>\n\\boxed{{{answer}}}\nAnswer: {answer}"]

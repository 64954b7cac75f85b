"""A perfect attempt at a question whose answer is judged."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    """Give the expected answer, in each of the forms that the patterns of the rows look for."""
    answer = row["expected_answer"]
    return [f"<answer>{answer}</answer>\n\\boxed{{{answer}}}\nAnswer: {answer}"]

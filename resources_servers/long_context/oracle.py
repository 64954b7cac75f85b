"""A perfect reply: the expected answer and, if asked for, its sources."""

from typing import Any


def solve(row: dict[str, Any]) -> list[Any]:
    expected = row["expected_answer"]
    answer = f"Answer: {', '.join(expected) if isinstance(expected, list) else expected}"
    if row.get("sources"):
        answer = f"Sources: {', '.join(row['sources'])}\n{answer}"
    return [f"I have read the whole archive.\n{answer}"]

"""A perfect answer: read the documents of the task, then answer in the requested form."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """Read every document and give the expected answer."""
    reading = [call("read_document", name=name) for name in row.get("documents") or {}]
    return [*reading, f"I have followed the rules of this task.\nAnswer: {row['expected_answer']}"]

"""A perfect attempt that reads the task's documents, then answers in the requested form."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    reading = [call("read_document", name=name) for name in row.get("documents") or {}]
    return [*reading, f"I have followed the rules of this task.\nAnswer: {row['expected_answer']}"]

"""A perfect answer: the reference query in a fenced code block."""

from typing import Any

from nemo_gym.testing import FunctionToolCall


def solve(row: dict[str, Any]) -> list[str | FunctionToolCall]:
    return [f"```sql\n{row['sql']}\n```"]

"""A perfect answer: the reference in a fenced block."""

from typing import Any

from nemo_gym.testing import FunctionToolCall


def solve(row: dict[str, Any]) -> list[str | FunctionToolCall]:
    """Return the row's reference query as the answer."""
    return [f"```sql\n{row['sql']}\n```"]

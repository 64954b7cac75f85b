"""A perfect attempt: the reference, said in a fenced block."""

from typing import Any

from nemo_gym.testing import FunctionToolCall


def solve(row: dict[str, Any]) -> list[str | FunctionToolCall]:
    """The answer that finds what is asked for."""
    return [f"```sql\n{row['sql']}\n```"]

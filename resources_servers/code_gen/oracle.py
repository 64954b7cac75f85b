"""A perfect answer: the row's reference solution."""

from typing import Any

from nemo_gym.testing import FunctionToolCall


def solve(row: dict[str, Any]) -> list[str | FunctionToolCall]:
    """Return the reference solution in a fenced block."""
    return [f"```python\n{row['verifier_metadata']['reference']}\n```"]

"""A perfect attempt: the reference solution that the row carries."""

from typing import Any

from nemo_gym.testing import FunctionToolCall


def solve(row: dict[str, Any]) -> list[str | FunctionToolCall]:
    """The answer that passes all tests."""
    return [f"```python\n{row['verifier_metadata']['reference']}\n```"]

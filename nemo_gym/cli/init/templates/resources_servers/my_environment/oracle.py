"""The oracle: a perfect attempt at each row, which `ng env check` plays and which must earn the full reward."""

from typing import Any

from nemo_gym.testing import FunctionToolCall, call


def solve(row: dict[str, Any]) -> list[str | FunctionToolCall]:
    """Return the texts and tool calls of the attempt, in order; the oracle may use fields hidden from the model."""
    return [call("guess_number", number=row["hidden_number"]), f"The number is {row['hidden_number']}."]

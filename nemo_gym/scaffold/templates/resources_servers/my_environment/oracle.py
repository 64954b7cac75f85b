"""A perfect attempt at each row: `ng_check` plays it, and it has to earn the full reward."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """The texts and tool calls of the attempt, in order; an oracle may know what the model does not."""
    return [call("guess_number", number=row["hidden_number"]), f"The number is {row['hidden_number']}."]

"""A perfect attempt at an errand."""

import json
from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """Make the calls of the ground truth, then report success."""
    return [*(call(each["name"], **json.loads(each["arguments"])) for each in row["ground_truth"]), "It is done."]


def asks_for_something(row: dict[str, Any]) -> bool:
    """Return whether the row requires any change."""
    return bool(row["ground_truth"])

"""A perfect attempt, which makes the calls of the ground truth."""

import json
from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    return [*(call(each["name"], **json.loads(each["arguments"])) for each in row["ground_truth"]), "It is done."]


def asks_for_something(row: dict[str, Any]) -> bool:
    """Return whether the row requires a change. If not, a model that does nothing is right."""
    return bool(row["ground_truth"])

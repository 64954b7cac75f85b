"""A perfect attempt at a day's errands at work."""

import json
from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """Make the calls of the ground truth, and say so."""
    return [*(call(each["name"], **json.loads(each["arguments"])) for each in row["ground_truth"]), "It is done."]


def asks_for_something(row: dict[str, Any]) -> bool:
    """Some rows are right as long as nothing is touched."""
    return bool(row["ground_truth"])

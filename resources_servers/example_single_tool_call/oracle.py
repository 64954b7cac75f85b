"""A perfect attempt at a weather question."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """Ask for the weather, then report it."""
    return [call("get_weather", city="Oslo"), "It is cold; take a coat."]


def asks_for_something(row: dict[str, Any]) -> bool:
    """Return False, because even an empty attempt is rewarded."""
    return False

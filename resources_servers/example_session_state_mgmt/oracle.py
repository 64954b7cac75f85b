"""A perfect attempt at bringing the counter where it should be."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """Add what is missing, look, and tell."""
    missing = row["expected_count"] - row["initial_count"]
    return [
        call("increment_counter", count=missing),
        call("get_counter_value"),
        f"The counter is at {row['expected_count']}.",
    ]


def asks_for_something(row: dict[str, Any]) -> bool:
    """A counter that stands right already asks for nothing."""
    return bool(row["expected_count"] != row["initial_count"])

"""A perfect attempt at reaching the expected count."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """Add the difference, read the counter and report its value."""
    missing = row["expected_count"] - row["initial_count"]
    return [
        call("increment_counter", count=missing),
        call("get_counter_value"),
        f"The counter is at {row['expected_count']}.",
    ]


def asks_for_something(row: dict[str, Any]) -> bool:
    """Return whether the counter must change at all."""
    return bool(row["expected_count"] != row["initial_count"])

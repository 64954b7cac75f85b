"""The oracle: a perfect answer to each row, which `ng env check` sends and which must earn the full reward."""

from typing import Any

from resources_servers.my_environment.app import BEST, MARK


def solve(row: dict[str, Any]) -> list[str]:
    """Return the texts of the attempt; the oracle may use fields hidden from the model."""
    return [f"{MARK} {', '.join(sorted(row['words']))}"]


def full_reward(row: dict[str, Any]) -> float:
    """Return the reward of this attempt."""
    return BEST

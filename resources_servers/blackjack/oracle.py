"""A perfect hand, played with knowledge of the whole deck."""

from __future__ import annotations

from typing import Any

from resources_servers.blackjack.game import best_play

RIGHT_BY_CHANCE = {"the question echoed": "it ends with 'stand', which wins some hands"}
"""The attacks that some hands may accept, each with the reason."""


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the best decisions, one per turn."""
    return list(best_play(row["seed"])[0])


def full_reward(row: dict[str, Any]) -> float:
    """Return the best reward possible with the deck: 1 if the hand can be won, and less otherwise."""
    return float(best_play(row["seed"])[1])


def asks_for_something(row: dict[str, Any]) -> bool:
    """Return whether the hand can be won. If it cannot, an empty attempt may earn the best reward, too."""
    return full_reward(row) > 0

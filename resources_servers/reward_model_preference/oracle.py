"""A perfect answer: the row's better reference answer, to which the embedded reward model gives its best score."""

from __future__ import annotations

from typing import Any

BEST_REWARD = 2.0
"""The upper end of `clip` in the config. A reward model's scores do not have an upper limit of their own."""


def solve(row: dict[str, Any]) -> list[Any]:
    return [row["chosen"]]


def full_reward(row: dict[str, Any]) -> float:
    return BEST_REWARD

"""A perfect attempt: the expected call, followed by text."""

from __future__ import annotations

from typing import Any

from nemo_gym.testing import call

ATTACK_MARGIN = 2 / 3
"""A call with made-up arguments may earn two of the three components, because it is well-formed."""


def solve(row: dict[str, Any]) -> list[Any]:
    expected = row["expected_call"]
    return [call(expected["name"], **expected["arguments"]), "This is what I found out for you."]


def full_reward(row: dict[str, Any]) -> float:
    """Return 3, because each of the three components can earn 1."""
    return 3.0

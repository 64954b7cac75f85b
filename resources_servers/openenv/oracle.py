"""A perfect attempt at the included number game. How to win another environment is not known."""

from typing import Any

from nemo_gym.testing import call
from resources_servers.openenv.demo import secret_of
from resources_servers.openenv.episode import ACT

GAME = "guess_the_number"


def solve(row: dict[str, Any]) -> list[Any]:
    return [call(ACT, number=secret_of(row["reset"]["seed"]))] if _is_known(row) else [""]


def full_reward(row: dict[str, Any]) -> float:
    return float(_is_known(row))


def asks_for_something(row: dict[str, Any]) -> bool:
    return _is_known(row)


def _is_known(row: dict[str, Any]) -> bool:
    return row.get("environment") == GAME

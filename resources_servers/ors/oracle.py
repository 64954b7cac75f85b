"""A perfect attempt at the number game, by halving. The tasks of other servers have no known solution."""

from typing import Any

from nemo_gym.testing import call
from resources_servers.ors.demo import HIGHEST, RULES, hidden


def _is_game(row: dict[str, Any]) -> bool:
    return bool(row["responses_create_params"]["input"] == [{"role": "user", "content": RULES}])


def solve(row: dict[str, Any]) -> list[Any]:
    if not _is_game(row):
        return [""]
    number, low, high, guess, calls = hidden(**row["ors"]), 1, HIGHEST, 0, []
    while guess != number:
        guess = (low + high) // 2
        calls.append(call("guess", number=guess))
        low, high = (guess + 1, high) if guess < number else (low, guess - 1)
    return calls


def full_reward(row: dict[str, Any]) -> float:
    return float(_is_game(row))


asks_for_something = _is_game

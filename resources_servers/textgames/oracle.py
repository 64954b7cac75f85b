"""A perfect attempt at the included number game. How to win the games of the libraries is not known."""

from typing import Any

from resources_servers.textgames.games.included_game import NAME, secret_of


def solve(row: dict[str, Any]) -> list[Any]:
    return [f"[{secret_of(row['seed'])}]"] if _is_known(row) else [""]


def full_reward(row: dict[str, Any]) -> float:
    return float(_is_known(row))


def asks_for_something(row: dict[str, Any]) -> bool:
    return _is_known(row)


def _is_known(row: dict[str, Any]) -> bool:
    return row.get("game", NAME) == NAME

"""A perfect game: the shortest solution, one move per turn."""

from __future__ import annotations

from typing import Any

from nemo_gym import DataError
from resources_servers.grl_sokoban.generation import generate
from resources_servers.grl_sokoban.level import Level
from resources_servers.grl_sokoban.search import shortest_solution


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the moves of the shortest solution. Raises `DataError` if none is found."""
    moves = shortest_solution(_level(row))
    if moves is None:
        raise DataError("no solution was found for the row's level.")
    return [f"<answer>{move}</answer>" for move in moves]


def _level(row: dict[str, Any]) -> Level:
    if row.get("level") is not None:
        return Level.of_text(row["level"])
    rows, columns = row.get("dim_room") or (7, 7)
    return generate(row["seed"], (rows, columns), row.get("num_boxes") or 2)

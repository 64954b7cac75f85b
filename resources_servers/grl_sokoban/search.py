"""Find the shortest solution of a level by breadth-first search."""

from __future__ import annotations

from collections import deque

from resources_servers.grl_sokoban.level import MOVES, Level, Place

MOST_STATES = 500_000


def shortest_solution(level: Level) -> list[str] | None:
    """Return the shortest solution of a level, or None if it is not found within `MOST_STATES` states."""
    if level.is_solved:
        return []
    dead = _dead_squares(level)
    came_from: dict[Level, tuple[Level, str] | None] = {level: None}
    waiting = deque([level])
    while waiting and len(came_from) < MOST_STATES:
        state = waiting.popleft()
        for move in MOVES:
            after = state.after(move)
            if after in came_from or (after.boxes is not state.boxes and after.boxes & dead):
                continue
            came_from[after] = state, move
            if after.is_solved:
                return _moves_to(after, came_from)
            waiting.append(after)
    return None


def _dead_squares(level: Level) -> set[Place]:
    """Return the squares from which a box cannot reach any goal, found by pulling boxes away from the goals."""
    floor, alive, waiting = level.room.floor, set(level.room.goals), list(level.room.goals)
    while waiting:
        box = waiting.pop()
        for move in MOVES:
            player = box.next(move)
            if player in floor and player.next(move) in floor and player not in alive:
                alive.add(player)
                waiting.append(player)
    return set(floor) - alive


def _moves_to(state: Level, came_from: dict[Level, tuple[Level, str] | None]) -> list[str]:
    moves = []
    while (step := came_from[state]) is not None:
        state, move = step
        moves.append(move)
    return moves[::-1]

"""Levels that can be solved, because they were made by playing backwards from the end."""

from __future__ import annotations

import random
from dataclasses import replace

from resources_servers.grl_sokoban.level import MOVES, Level, Place, Room

INNER_WALLS = 0.15
"""The part of the squares inside that become walls."""
BACKWARD_MOVES = 6
"""For every square of the room."""
DRAWS = 100


def generate(seed: int, dim_room: tuple[int, int] = (7, 7), num_boxes: int = 2) -> Level:
    """The level of a seed, in a room of so many rows and columns, its outer walls included.

    Every box has to be moved. Raises `ValueError` where a room of that size has no place for such a level.
    """
    rng = random.Random(f"sokoban {seed} {dim_room[0]}x{dim_room[1]} {num_boxes}")
    for _ in range(DRAWS):
        room = _room(rng, dim_room, num_boxes)
        level = _played_backwards(rng, room) if room else None
        if level is not None and not level.boxes & level.room.goals:
            return level
    raise ValueError(
        f"no level with {num_boxes} boxes was found in a room of {dim_room[0]} by {dim_room[1]}; "
        "take a larger room or fewer boxes"
    )


def _room(rng: random.Random, dim_room: tuple[int, int], num_boxes: int) -> Room | None:
    height, width = dim_room
    inside = [Place(row, column) for row in range(1, height - 1) for column in range(1, width - 1)]
    kept = {place for place in inside if rng.random() >= INNER_WALLS}
    # What walls have cut off is wall too.
    floor = _reached(kept, rng.choice(sorted(kept))) if kept else kept
    if len(floor) < max(len(inside) / 2, 2 * num_boxes + 2):
        return None
    return Room(frozenset(floor), frozenset(rng.sample(sorted(floor), num_boxes)))


def _reached(floor: set[Place], start: Place) -> set[Place]:
    reached, waiting = {start}, [start]
    while waiting:
        place = waiting.pop()
        for each in (place.next(move) for move in MOVES):
            if each in floor and each not in reached:
                reached.add(each)
                waiting.append(each)
    return reached


def _played_backwards(rng: random.Random, room: Room) -> Level:
    """From the solved room, step back and pull: forwards, the same is stepping and pushing."""
    level = Level(room, room.goals, rng.choice(sorted(room.floor - room.goals)))
    for _ in range(BACKWARD_MOVES * len(room.floor)):
        move = rng.choice(list(MOVES))
        here, back = level.player, level.player.next(move)
        if back not in room.floor or back in level.boxes:
            continue
        pulled = Place(2 * here.row - back.row, 2 * here.column - back.column)
        boxes = level.boxes
        if pulled in boxes and rng.random() < 0.8:
            boxes = boxes - {pulled} | {here}
        level = replace(level, player=back, boxes=boxes)
    return level

"""A Sokoban room with its walls, goals, boxes and player, and the effect of moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """A square, relative to the room's upper left corner."""

    row: int
    column: int

    def next(self, move: str) -> Place:
        """Return the neighbour in a move's direction."""
        down, right = MOVES[move]
        return Place(self.row + down, self.column + right)


MOVES = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "# .$*@+"


@dataclass(frozen=True)
class Room:
    """The fixed part of a level: its floor and its goals."""

    floor: frozenset[Place]
    goals: frozenset[Place]


@dataclass(frozen=True)
class Level:
    """A room at one moment of the game."""

    room: Room
    boxes: frozenset[Place]
    player: Place

    @classmethod
    def of_text(cls, text: str) -> Level:
        """Parse the usual notation: `#` wall, `.` goal, `$` box, `@` player, `*` box on a goal, `+` player on a goal.

        Raises `ValueError` for any other character, or if there is not exactly one player and one box per goal.
        """
        signs = {
            Place(row, column): sign
            for row, line in enumerate(text.strip("\n").splitlines())
            for column, sign in enumerate(line.rstrip())
        }
        unknown = set(signs.values()) - {WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL}
        if unknown:
            raise ValueError(f"the level has unknown characters: {' '.join(sorted(unknown))}")
        players = _places(signs, PLAYER + PLAYER_ON_GOAL)
        boxes, goals = _places(signs, BOX + BOX_ON_GOAL), _places(signs, GOAL + BOX_ON_GOAL + PLAYER_ON_GOAL)
        if len(players) != 1:
            raise ValueError(f"the level has {len(players)} players instead of one")
        if len(boxes) != len(goals) or not boxes:
            raise ValueError(f"the level has {len(boxes)} boxes for {len(goals)} goals")
        return cls(Room(frozenset(_places(signs, " .$*@+")), frozenset(goals)), frozenset(boxes), players[0])

    @property
    def is_solved(self) -> bool:
        """Whether every box is on a goal."""
        return self.boxes == self.room.goals

    @property
    def boxes_on_goals(self) -> int:
        return len(self.boxes & self.room.goals)

    def after(self, move: str) -> Level:
        """Return the level after a move, or the same level if the player or the box ahead is blocked."""
        ahead = self.player.next(move)
        if ahead not in self.room.floor:
            return self
        if ahead not in self.boxes:
            return Level(self.room, self.boxes, ahead)
        beyond = ahead.next(move)
        if beyond not in self.room.floor or beyond in self.boxes:
            return self
        return Level(self.room, self.boxes - {ahead} | {beyond}, ahead)

    def __str__(self) -> str:
        height = max(place.row for place in self.room.floor) + 2
        width = max(place.column for place in self.room.floor) + 2
        return "\n".join(
            "".join(self._sign(Place(row, column)) for column in range(width)).rstrip() for row in range(height)
        )

    def _sign(self, place: Place) -> str:
        if place not in self.room.floor:
            return WALL
        is_goal = place in self.room.goals
        if place == self.player:
            return PLAYER_ON_GOAL if is_goal else PLAYER
        if place in self.boxes:
            return BOX_ON_GOAL if is_goal else BOX
        return GOAL if is_goal else FLOOR


def _places(signs: dict[Place, str], wanted: str) -> list[Place]:
    return [place for place, sign in signs.items() if sign in wanted]

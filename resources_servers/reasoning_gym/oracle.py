"""A perfect answer to a question: the row's expected answer or, for some generators, a computed one."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from nemo_gym import DataError

Metadata = dict[str, Any]

SIDE = 6
"""The number of squares on each side of rush_hour's board. The red car A has to leave the board on the right."""


def solve(row: dict[str, Any]) -> list[Any]:
    return [f"<answer>{answer_to(row)}</answer>"]


def answer_to(row: dict[str, Any]) -> str:
    """Return the row's answer, or else compute one that earns 1. Raises `DataError` if neither is possible."""
    if row.get("answer") is not None:
        return str(row["answer"])
    metadata = row["metadata"]
    name = metadata["source_dataset"]
    if name not in _SOLVERS:
        raise DataError(f"answer: missing, and answers to '{name}' cannot be computed. Add the answer to the row.")
    return _SOLVERS[name](metadata)


def _boxnet(metadata: Metadata) -> str:
    """Return a plan that moves each box to a target of its colour. In each step, only one agent moves a box."""
    state: dict[str, list[str]] = metadata["initial_state"]
    targets = {
        (name, place): items.count(name) for place, items in state.items() for name in items if "target_" in name
    }
    steps: list[dict[str, str]] = []
    for place, items in state.items():
        for box in (item for item in items if item.startswith("box_")):
            target = box.replace("box_", "target_", 1)
            goal = next(square for (name, square), left in targets.items() if name == target and left)
            targets[target, goal] -= 1
            squares = list(_walk(place, goal))
            for here, there in pairwise(squares):
                steps.append({f"Agent[{here}]": f"move({box}, square[{there}])"})
            steps.append({f"Agent[{squares[-1]}]": f"move({box}, {target})"})
    return json.dumps(steps)


def _walk(start: str, goal: str) -> Iterator[str]:
    (x, y), (goal_x, goal_y) = (map(float, place.split("_")) for place in (start, goal))
    yield f"{x}, {y}"
    while (x, y) != (goal_x, goal_y):
        if x != goal_x:
            x += 1 if goal_x > x else -1
        else:
            y += 1 if goal_y > y else -1
        yield f"{x}, {y}"


def _graph_color(metadata: Metadata) -> str:
    puzzle = metadata["puzzle"]
    neighbours: dict[Any, set[Any]] = {vertex: set() for vertex in puzzle["vertices"]}
    for one, other in puzzle["edges"]:
        neighbours[one].add(other)
        neighbours[other].add(one)
    order = sorted(neighbours, key=lambda vertex: -len(neighbours[vertex]))
    colours: dict[Any, Any] = {}

    def colour_from(place: int) -> bool:
        if place == len(order):
            return True
        for colour in puzzle["color_options"]:
            if all(colours.get(each) != colour for each in neighbours[order[place]]):
                colours[order[place]] = colour
                if colour_from(place + 1):
                    return True
                del colours[order[place]]
        return False

    colour_from(0)
    return json.dumps({str(vertex): colour for vertex, colour in colours.items()})


def _propositional_logic(metadata: Metadata) -> str:
    """Return the conjunction of all premises. It follows from the premises and is rarely a tautology."""
    premises = [f"({premise})" for premise in metadata["premises"]]
    # Repeat a single premise, because the scorer rejects a single variable as trivial.
    return " ∧ ".join(premises if len(premises) > 1 else premises * 2)


def _rubiks_cube(metadata: Metadata) -> str:
    """Return the inverse of the scramble moves, in reverse order."""
    return " ".join(move for mixing in reversed(metadata["scramble_moves"].split()) for move in _undone(mixing))


def _undone(move: str) -> list[str]:
    """Return the inverse of a move. Leave out layer numbers, because reasoning-gym's scorer cannot parse them."""
    read = re.fullmatch(r"(\d?)([A-Z])(w?)('?)", move)
    if read is None or read[1] not in ("", "1", "2"):
        raise DataError(f"scramble_moves: the inverse of '{move}' is not known. Fix the row.")
    layer, face, is_wide, is_reversed = read[1], read[2], bool(read[3]), bool(read[4])
    mark, opposite = ("", "'") if is_reversed else ("'", "")
    if layer == "2" and not is_wide:
        return [f"{face}w{mark}", f"{face}{opposite}"]
    return [f"{face}w{mark}" if is_wide and layer != "1" else f"{face}{mark}"]


class _Car(NamedTuple):
    """A vehicle on a rush_hour board. `place` is its first square and `stride` the distance between its squares."""

    place: int
    size: int
    stride: int

    def squares(self, place: int) -> list[int]:
        return [place + step * self.stride for step in range(self.size)]

    def entered(self, place: int, way: int) -> int | None:
        """Return the square that the car enters if it moves by one square, or None at the edge of the board.

        `way` is 1 or -1.
        """
        edge = place + (self.size - 1) * self.stride if way > 0 else place
        if self.stride == 1:
            return edge + way if 0 <= edge % SIDE + way < SIDE else None
        return edge + way * SIDE if 0 <= edge + way * SIDE < SIDE * SIDE else None


def _rush_hour(metadata: Metadata) -> str:
    """Return the shortest sequence of one-square moves, found by breadth-first search."""
    board: str = metadata["board_config"]
    walls = {place for place, letter in enumerate(board) if letter == "x"}
    letters = sorted(set(board) - {"o", "x", "."})
    squares = {letter: [place for place, each in enumerate(board) if each == letter] for letter in letters}
    cars = [_Car(each[0], len(each), each[1] - each[0]) for each in squares.values()]
    start = tuple(car.place for car in cars)
    came_from: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        position = waiting.popleft()
        if position[0] % SIDE == SIDE - cars[0].size:
            return " ".join(reversed(list(_moves_to(position, came_from))))
        taken = walls.union(*(car.squares(place) for car, place in zip(cars, position, strict=True)))
        for number, (car, place) in enumerate(zip(cars, position, strict=True)):
            for way in (1, -1):
                entered = car.entered(place, way)
                moved = (*position[:number], place + way * car.stride, *position[number + 1 :])
                if entered is not None and entered not in taken and moved not in came_from:
                    # Name the vehicles A, B, C, … in order, because the question renames them in the same way.
                    came_from[moved] = position, f"{chr(ord('A') + number)}{way:+d}"
                    waiting.append(moved)
    raise DataError("board_config: the red car cannot leave this board. Fix the row.")


def _moves_to(position: Any, came_from: dict[Any, Any]) -> Iterator[str]:
    while came_from[position] is not None:
        position, move = came_from[position]
        yield move


_SOLVERS: dict[str, Callable[[Metadata], str]] = {
    "boxnet": _boxnet,
    "graph_color": _graph_color,
    "propositional_logic": _propositional_logic,
    "rubiks_cube": _rubiks_cube,
    "rush_hour": _rush_hour,
}

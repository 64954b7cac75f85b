"""Questions about mazes: which exit can be reached, and which moves lead to a goal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from resources_servers.visual_reasoning.drawing import Canvas, Colour, Point
from resources_servers.visual_reasoning.tasks import Sheet, Task

SIZE, CELL, MARGIN = 7, 30, 26
MOVES = {"U": (0, -1), "D": (0, 1), "L": (-1, 0), "R": (1, 0)}
SHORTEST, LONGEST = 4, 14
WALLS: tuple[Colour, ...] = ((40, 40, 60), (90, 40, 30), (20, 80, 60))
START: Colour = (30, 140, 60)
GOAL: Colour = (200, 40, 40)

Cell = tuple[int, int]
Passage = tuple[Cell, Cell]
"""Two neighbouring cells without a wall between them, in ascending order of their coordinates."""
CELLS: tuple[Cell, ...] = tuple((x, y) for y in range(SIZE) for x in range(SIZE))


@dataclass(frozen=True)
class Maze(Sheet):
    """A maze with passages between cells, a start, and either exits or a goal."""

    WIDTH: ClassVar[int] = 2 * MARGIN + SIZE * CELL
    HEIGHT: ClassVar[int] = 2 * MARGIN + SIZE * CELL

    passages: tuple[Passage, ...]
    start: Cell
    goal: Cell | None
    exits: tuple[tuple[str, Cell], ...]
    """The letter of each exit, and the cell outside of the maze next to the exit."""
    wall: Colour

    def draw(self, canvas: Canvas) -> None:
        opened = {*self.passages, *(_passage(cell, _inside(cell)) for _, cell in self.exits)}
        for cell in CELLS:
            for beside in _around(cell):
                if _passage(cell, beside) not in opened:
                    canvas.line(_wall(cell, beside), self.wall, 3)
        for letter, cell, colour in (("S", self.start, START), ("G", self.goal, GOAL)):
            if cell is not None:
                canvas.circle(_centre(cell), 11, fill=colour)
                canvas.text(_centre(cell), letter, 15, colour=(255, 255, 255))
        for letter, cell in self.exits:
            x, y = _centre(cell)
            inside = _centre(_inside(cell))
            canvas.text((x + (inside[0] - x) * 0.13, y + (inside[1] - y) * 0.13), letter, 17, colour=GOAL)


def maze(rng: random.Random) -> Task:
    return rng.choice((_exit, _moves))(rng)


def _moves(rng: random.Random) -> Task:
    passages = _carved(rng)
    while True:
        start, goal = rng.sample(CELLS, 2)
        path = path_between(passages, start, goal)
        if SHORTEST <= len(path) <= LONGEST:
            break
    picture = Maze(tuple(sorted(passages)), start, goal, (), rng.choice(WALLS))
    question = (
        "Give the shortest way from S to G in the maze as one letter for each step to the next cell: U (up), D "
        f"(down), L (left), R (right). The maze has {SIZE} × {SIZE} cells."
    )
    return Task("maze", question, (picture,), "moves", path)


def _exit(rng: random.Random) -> Task:
    while True:
        passages, start = _carved(rng), rng.choice(CELLS)
        sides = [(-1, rng.randrange(SIZE)), (SIZE, rng.randrange(SIZE)), (rng.randrange(SIZE), -1)]
        cells = [*sides, (rng.randrange(SIZE), SIZE)]
        rng.shuffle(cells)
        if _only_first_is_reached(rng, passages, start, cells):
            break
    letters = rng.sample("ABCD", 4)
    exits = tuple(sorted(zip(letters, cells, strict=True)))
    picture = Maze(tuple(sorted(passages)), start, None, exits, rng.choice(WALLS))
    question = (
        "Only one of the exits A, B, C and D can be reached from S in the maze. Which one? Answer with its letter."
    )
    return Task("maze", question, (picture,), "text", letters[0])


def _only_first_is_reached(rng: random.Random, passages: set[Passage], start: Cell, exits: list[Cell]) -> bool:
    """Close passages so that only the first exit can be reached.

    Return False if this is not possible, or if the path to the first exit is too short.
    """
    wanted = {*_passages_of(path_between(passages, start, _inside(exits[0])), start)}
    if len(wanted) < SHORTEST:
        return False
    for cell in exits[1:]:
        path = path_between(passages, start, _inside(cell))
        if path is None:
            continue
        others = [passage for passage in _passages_of(path, start) if passage not in wanted]
        if not others:
            return False
        passages.remove(rng.choice(others))
    return True


def _carved(rng: random.Random) -> set[Passage]:
    """Return random passages that connect all cells without a cycle."""
    passages: set[Passage] = set()
    trail = [rng.choice(CELLS)]
    seen = {trail[0]}
    while trail:
        free = [cell for cell in _around(trail[-1]) if cell in CELLS and cell not in seen]
        if not free:
            trail.pop()
            continue
        cell = rng.choice(free)
        passages.add(_passage(trail[-1], cell))
        seen.add(cell)
        trail.append(cell)
    return passages


def path_between(passages: set[Passage], start: Cell, goal: Cell) -> str | None:
    """Return the moves of the only path between two cells, or None if there is no path."""
    ways = {start: ""}
    unvisited = [start]
    for cell in unvisited:
        for letter, (dx, dy) in MOVES.items():
            beside = (cell[0] + dx, cell[1] + dy)
            if beside not in ways and _passage(cell, beside) in passages:
                ways[beside] = ways[cell] + letter
                unvisited.append(beside)
    return ways.get(goal)


def _passages_of(path: str, start: Cell) -> Iterator[Passage]:
    for letter in path:
        beside = (start[0] + MOVES[letter][0], start[1] + MOVES[letter][1])
        yield _passage(start, beside)
        start = beside


def _around(cell: Cell) -> list[Cell]:
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in MOVES.values()]


def _passage(one: Cell, other: Cell) -> Passage:
    return (one, other) if one < other else (other, one)


def _inside(cell: Cell) -> Cell:
    """Return the cell of the maze next to an exit."""
    return min(max(cell[0], 0), SIZE - 1), min(max(cell[1], 0), SIZE - 1)


def _centre(cell: Cell) -> Point:
    return MARGIN + (cell[0] + 0.5) * CELL, MARGIN + (cell[1] + 0.5) * CELL


def _wall(cell: Cell, beside: Cell) -> list[Point]:
    """Return the ends of the wall between two neighbouring cells."""
    (x, y), (other_x, other_y) = _centre(cell), _centre(beside)
    middle_x, middle_y = (x + other_x) / 2, (y + other_y) / 2
    half_x, half_y = (other_y - y) / 2, (other_x - x) / 2
    return [(middle_x - half_x, middle_y - half_y), (middle_x + half_x, middle_y + half_y)]

"""Generate rows: Sokoban levels from seeds, or from a file of levels.

python resources_servers/grl_sokoban/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as numbers
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from nemo_gym import DataError, Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.grl_sokoban.generation import generate
from resources_servers.grl_sokoban.level import Level
from resources_servers.grl_sokoban.search import shortest_solution

INSTRUCTION = (
    "You play Sokoban. # is a wall, . a goal, $ a box, @ you; * is a box on a goal, + you on a goal. You push a box "
    "by walking into it if the square behind it is free; you cannot pull. Bring every box onto a goal. After each "
    "room that is shown, answer with up to ten moves, which are Up, Down, Left and Right: "
    "<answer>Up, Left, Left</answer>."
)
FEWEST_MOVES, MOST_MOVES = 4, 60


class Written(NamedTuple):
    """The text of a level in a file, and the number of the line at which it starts."""

    line: int
    text: str


def prepare(
    output: Path,
    count: int = 100,
    seed: int = 0,
    *,
    dim_room: tuple[int, int] = (7, 7),
    num_boxes: int = 2,
    levels: Path | None = None,
    split: Split | None = None,
) -> Path:
    """Write up to `count` rows and return their path.

    seed: the first seed; only levels whose shortest solution has 4 to 60 moves are kept
    dim_room: rows and columns
    num_boxes: number of boxes
    levels: a text file of levels to use instead, separated by empty lines; lines starting with `;` are comments

    Raises `DataError` with file and line for an invalid or unsolvable level.
    """
    rows = _generated(seed, dim_room, num_boxes) if levels is None else _of_file(levels)
    write_rows(output, split_rows(rows, split, count, key=itemgetter("level")))
    return output


def _row(level: str, **more: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "system", "content": INSTRUCTION}]},
        "level": level,
        **more,
    }


def _generated(seed: int, dim_room: tuple[int, int], num_boxes: int) -> Iterator[dict[str, Any]]:
    for number in numbers(seed):
        try:
            level = generate(number, dim_room, num_boxes)
        except ValueError as error:
            raise DataError(f"--dim-room, --num-boxes: {error}.") from error
        moves = shortest_solution(level)
        if moves is not None and FEWEST_MOVES <= len(moves) <= MOST_MOVES:
            yield _row(
                str(level), seed=number, dim_room=list(dim_room), num_boxes=num_boxes, shortest_solution=len(moves)
            )


def _of_file(path: Path) -> Iterator[dict[str, Any]]:
    for written in _levels_in(path):
        try:
            level = Level.of_text(written.text)
        except ValueError as error:
            raise DataError(f"{path}:{written.line}: {error}.") from error
        moves = shortest_solution(level)
        if not moves:
            problem = "is already solved" if moves == [] else "has no solution that could be found"
            raise DataError(f"{path}:{written.line}: the level {problem}. Remove it.")
        yield _row(written.text, shortest_solution=len(moves))


def _levels_in(path: Path) -> Iterator[Written]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    current: list[str] = []
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip() and not line.startswith(";"):
            current.append(line.rstrip())
        elif current:
            yield Written(number - len(current), "\n".join(current))
            current = []


if __name__ == "__main__":
    run_prepare(prepare)

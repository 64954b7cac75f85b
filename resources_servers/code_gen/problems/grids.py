"""Problems about grids of characters and tables of numbers."""

from __future__ import annotations

import random

from resources_servers.code_gen.problems.problem import GRID, INT, NUMBERS, TABLE, Family, Problem

SIDES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
CORNERS = {"up-left": (-1, -1), "up-right": (-1, 1), "down-left": (1, -1), "down-right": (1, 1)}


def grid(draw: random.Random, letters: str, most: int = 8) -> list[str]:
    """Return a random grid whose rows are equally long."""
    height, width = draw.randint(1, most), draw.randint(1, most)
    return ["".join(draw.choice(letters) for _ in range(width)) for _ in range(height)]


def table(draw: random.Random, low: int = -9, high: int = 30, most: int = 6) -> list[list[int]]:
    """Return a random table whose rows are equally long."""
    height, width = draw.randint(1, most), draw.randint(1, most)
    return [[draw.randint(low, high) for _ in range(width)] for _ in range(height)]


def life(chance: random.Random) -> Problem:
    """Draw a problem about simulating steps of a cellular automaton."""
    born, kept = (sorted(chance.sample(range(1, 6), chance.randint(1, 3))) for _ in range(2))
    alive, dead, steps = chance.choice("#@Xo"), chance.choice(".-_"), chance.randint(1, 3)
    code = f"""\
def play(grid):
    for _ in range({steps}):
        alive = {{(y, x) for y, row in enumerate(grid) for x, cell in enumerate(row) if cell == "{alive}"}}

        def around(y, x):
            return sum((y + a, x + b) in alive for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)

        grid = [
            "".join(
                "{alive}" if around(y, x) in ({kept} if (y, x) in alive else {born}) else "{dead}"
                for x in range(len(row))
            )
            for y, row in enumerate(grid)
        ]
    return grid
"""
    statement = (
        f"In `grid`, '{alive}' is a live cell and '{dead}' a dead one. Each cell has up to eight neighbours. "
        f"In one step, "
        f"all cells change at once: a dead cell becomes alive if its number of live neighbours is one of "
        f"{born}, and a "
        f"live cell stays alive if that number is one of {kept}, else it dies. Return the grid after {steps} "
        f"step{'s' if steps > 1 else ''}."
    )
    return Problem(
        "play",
        statement,
        [("grid", GRID)],
        GRID,
        code,
        lambda draw: [grid(draw, alive + dead)],
        [[[alive]], [[alive * 3]]],
    )


def regions(chance: random.Random) -> Problem:
    """Draw a problem about measuring the connected regions of a grid."""
    land, sea = chance.sample("#.~oXw", 2)
    corners = chance.random() < 0.5
    moves = [*SIDES.values(), *(CORNERS.values() if corners else ())]
    fewest = chance.randint(1, 4)
    finish, result = chance.choice(
        (
            (f"the number of regions with at least {fewest} cells", f"sum(size >= {fewest} for size in sizes)"),
            ("the size of the largest region, or 0 if there is none", "max(sizes, default=0)"),
            (
                f"the number of cells in regions of at most {fewest} cells",
                f"sum(size for size in sizes if size <= {fewest})",
            ),
            ("the product of the sizes of the two largest regions (0 if there are fewer than two)", "product(sizes)"),
        )
    )
    code = f"""\
def product(sizes):
    return sorted(sizes)[-1] * sorted(sizes)[-2] if len(sizes) > 1 else 0


def measure(grid):
    left = {{(y, x) for y, row in enumerate(grid) for x, cell in enumerate(row) if cell == "{land}"}}
    sizes = []
    while left:
        region = [left.pop()]
        for y, x in region:
            for a, b in {moves}:
                if (y + a, x + b) in left:
                    left.remove((y + a, x + b))
                    region.append((y + a, x + b))
        sizes.append(len(region))
    return {result}
"""
    touching = "side or a corner" if corners else "side"
    statement = (
        f"In `grid`, a region is a largest group of '{land}' cells that are connected by neighbours. "
        f"Neighbours share a "
        f"{touching}. Return {finish}."
    )
    return Problem(
        "measure",
        statement,
        [("grid", GRID)],
        INT,
        code,
        lambda draw: [grid(draw, land + sea)],
        [[[land * 3, land * 3]], [[sea]]],
    )


def shortest_path(chance: random.Random) -> Problem:
    """Draw a problem about finding the shortest path of a piece with special moves."""
    kinds = (
        ("one cell to a side", list(SIDES.values())),
        ("one cell to a side or diagonally", [*SIDES.values(), *CORNERS.values()]),
        ("one cell diagonally", list(CORNERS.values())),
        ("like a knight of chess", [(a * i, b * j) for a, b in ((1, 2), (2, 1)) for i in (-1, 1) for j in (-1, 1)]),
        ("one cell to the right, to the left or down", [SIDES["right"], SIDES["left"], SIDES["down"]]),
        (
            "one or two cells to a side, and may jump over a wall",
            [(n * a, n * b) for a, b in SIDES.values() for n in (1, 2)],
        ),
    )
    how, moves = chance.choice(kinds)
    wall, fee = chance.choice("#X%"), chance.randint(2, 9)
    costly = chance.random() < 0.5
    cell = chance.choice("~^w")
    price = f" A move onto a '{cell}' cell costs {fee}, any other move costs 1." if costly else " Each move costs 1."
    code = f"""\
import heapq


def cheapest(grid):
    goal = len(grid) - 1, len(grid[-1]) - 1
    costs, queue = {{}}, [(0, 0, 0)]
    while queue:
        cost, y, x = heapq.heappop(queue)
        if not (0 <= y <= goal[0] and 0 <= x <= goal[1]) or (y, x) in costs or grid[y][x] == "{wall}":
            continue
        costs[y, x] = cost
        for a, b in {moves}:
            if 0 <= y + a <= goal[0] and 0 <= x + b <= goal[1]:
                step = {fee if costly else 1} if grid[y + a][x + b] == "{cell}" else 1
                heapq.heappush(queue, (cost + step, y + a, x + b))
    return costs.get(goal, -1)
"""
    statement = (
        f"In `grid`, '{wall}' is a wall. A piece moves {how}. It may not leave the grid or end a move on a "
        f"wall.{price} "
        "Return the lowest cost from the top left cell to the bottom right cell, or -1 if it is impossible (also if "
        "one of these two is a wall)."
    )
    letters = f"......{cell}{cell}{wall}" if costly else f"......{wall}{wall}"
    return Problem(
        "cheapest",
        statement,
        [("grid", GRID)],
        INT,
        code,
        lambda draw: [grid(draw, letters)],
        [[["."]], [["..", ".."]], [["..." for _ in range(6)]]],
    )


TURNS = (
    ("turn it by 90 degrees clockwise", "[list(row) for row in zip(*table[::-1])]"),
    ("turn it by 90 degrees counterclockwise", "[list(row) for row in zip(*table)][::-1]"),
    (
        "exchange rows and columns, so that the first row becomes the first column",
        "[list(row) for row in zip(*table)]",
    ),
    ("reverse each row", "[row[::-1] for row in table]"),
    ("reverse the order of the rows", "table[::-1]"),
    ("replace each row by its running sums", "[[sum(row[: at + 1]) for at in range(len(row))] for row in table]"),
    ("sort each row in ascending order", "[sorted(row) for row in table]"),
    ("move each row one place to the right; its last number comes first", "[row[-1:] + row[:-1] for row in table]"),
    ("order the rows by their sums, ascending; equal ones stay in their order", "sorted(table, key=sum)"),
    ("remove the first row if there is more than one row", "table[1:] or table"),
)


def turned(chance: random.Random) -> Problem:
    """Draw a problem about applying several changes to a table, one after another."""
    steps = chance.sample(TURNS, 3)
    lines = "\n".join(f"    table = {code}" for _, code in steps)
    finish, gives, result = chance.choice(
        (
            ("the table", TABLE, "table"),
            ("its numbers row by row, as one list", NUMBERS, "[n for row in table for n in row]"),
            ("the sum of each column, as a list", NUMBERS, "[sum(column) for column in zip(*table)]"),
            (
                "the numbers of its main diagonal (from the top left), as a list",
                NUMBERS,
                "[row[at] for at, row in enumerate(table) if at < len(row)]",
            ),
        )
    )
    code = f"def turn(table):\n{lines}\n    return {result}\n"
    first, second, third = (text for text, _ in steps)
    statement = f"Change `table` in three steps: {first}; then {second}; then {third}. Return {finish}."
    edges = [[[[5]]], [[[1, 2, 3]]], [[[1], [2], [3]]]]
    return Problem("turn", statement, [("table", TABLE)], gives, code, lambda draw: [table(draw)], edges)


def best_path(chance: random.Random) -> Problem:
    """Draw a problem about finding the best sum along a path through a table."""
    moves = dict(chance.sample([("right", (0, 1)), ("down", (1, 0)), ("diagonally down-right", (1, 1))], 2))
    most = chance.random() < 0.5
    toll = chance.randint(0, 6)
    best, word = ("max", "greatest") if most else ("min", "least")
    paid = f" Each move also {'subtracts' if most else 'adds'} {toll}." if toll else ""
    code = f"""\
def best_sum(table):
    best = {{}}
    for y, row in enumerate(table):
        for x, value in enumerate(row):
            before = [best[y - a, x - b] for a, b in {list(moves.values())} if (y - a, x - b) in best]
            if before or (y, x) == (0, 0):
                best[y, x] = value + ({best}(before) {"-" if most else "+"} {toll} if before else 0)
    return best.get((len(table) - 1, len(table[0]) - 1), {-1000})
"""
    statement = (
        f"A path through `table` begins at the top left number and ends at the bottom right one. Its moves go "
        f"one step "
        f"{' or '.join(moves)}. Its value is the sum of the numbers on it, both ends included.{paid} Return "
        f"the {word} "
        "value of a path, or -1000 if there is no path."
    )
    return Problem(
        "best_sum", statement, [("table", TABLE)], INT, code, lambda draw: [table(draw)], [[[[4]]], [[[1, 2]]]]
    )


def blocks(chance: random.Random) -> Problem:
    """Draw a problem about measuring rectangles of a fixed size in a table."""
    height, width = chance.randint(1, 3), chance.randint(2, 3)
    what, code_of = chance.choice(
        (
            ("the sum", "sum(block)"),
            ("the greatest number", "max(block)"),
            ("the greatest minus the least number", "max(block) - min(block)"),
            ("the number of different numbers", "len(set(block))"),
        )
    )
    finish, wrap = chance.choice((("greatest", "max"), ("least", "min")))
    odd = chance.choice(
        ("", " Only blocks whose top left number is even count.", " Only blocks without a negative number count.")
    )
    condition = "True" if not odd else "block[0] % 2 == 0" if "even" in odd else "min(block) >= 0"
    code = f"""\
def extreme_block(table):
    values = []
    for y in range(len(table) - {height} + 1):
        for x in range(len(table[0]) - {width} + 1):
            block = [n for row in table[y : y + {height}] for n in row[x : x + {width}]]
            if {condition}:
                values.append({code_of})
    return {wrap}(values, default=0)
"""
    statement = (
        f"A block is {height} row{'s' if height > 1 else ''} by {width} columns of neighbouring numbers of `table`. "
        f"For each block, take {what}.{odd} Return the {finish} of these values, or 0 if there is no such block."
    )
    edges = [[[[1]]], [[[1, 2], [3, 4]]]]
    return Problem("extreme_block", statement, [("table", TABLE)], INT, code, lambda draw: [table(draw)], edges)


FAMILIES: dict[str, Family] = {
    "life": life,
    "regions": regions,
    "shortest_path": shortest_path,
    "turned": turned,
    "best_path": best_path,
    "blocks": blocks,
}

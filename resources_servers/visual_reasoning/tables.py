"""Questions about values in tables that are drawn as pictures."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from resources_servers.visual_reasoning.charts import GOODS, SERIES
from resources_servers.visual_reasoning.drawing import INK, PALE, Canvas, Colour
from resources_servers.visual_reasoning.tasks import Sheet, Task

ROW_HEIGHT, FIRST_WIDTH, WIDTH = 28, 92, 78
MARGIN = 12
HEADERS: tuple[Colour, ...] = ((214, 226, 240), (240, 226, 206), (218, 236, 216))


@dataclass(frozen=True)
class Table(Sheet):
    """A sheet with a table of numbers."""

    WIDTH: ClassVar[int] = 2 * MARGIN + FIRST_WIDTH + 4 * WIDTH
    HEIGHT: ClassVar[int] = 2 * MARGIN + 8 * ROW_HEIGHT

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]
    header: Colour

    def draw(self, canvas: Canvas) -> None:
        width = FIRST_WIDTH + WIDTH * len(self.columns)
        height = ROW_HEIGHT * (len(self.rows) + 1)
        canvas.rectangle((MARGIN, MARGIN), (MARGIN + width, MARGIN + ROW_HEIGHT), self.header)
        for row, (name, cells) in enumerate([("", self.columns), *zip(self.rows, self.cells, strict=True)]):
            y = MARGIN + ROW_HEIGHT * row
            canvas.line([(MARGIN, y), (MARGIN + width, y)], INK if row < 2 else PALE)
            canvas.text((MARGIN + 8, y + ROW_HEIGHT / 2), name, 14, anchor="lm")
            for column, cell in enumerate(cells):
                x = MARGIN + FIRST_WIDTH + WIDTH * (column + 1)
                canvas.text((x - 8, y + ROW_HEIGHT / 2), str(cell), 14, anchor="rm")
        canvas.line([(MARGIN, MARGIN + height), (MARGIN + width, MARGIN + height)])


def table(rng: random.Random) -> Task:
    columns = tuple(rng.sample(SERIES, rng.randint(3, 4)))
    rows = tuple(rng.sample(GOODS, rng.randint(4, 7)))
    # Draw distinct numbers, so that each row and each column has a single largest and smallest number.
    numbers = iter(rng.sample(range(10, 1000), len(rows) * len(columns)))
    cells = tuple(tuple(next(numbers) for _ in columns) for _ in rows)
    picture = Table(columns, rows, cells, rng.choice(HEADERS))
    at_row, at_column = rng.randrange(len(rows)), rng.randrange(len(columns))
    row, column = rows[at_row], columns[at_column]
    in_column = [line[at_column] for line in cells]
    asked = (
        (f"Which number does the table show for {row} in {column}?", str(cells[at_row][at_column])),
        (f"What is the sum of the numbers for {row} over all columns?", str(sum(cells[at_row]))),
        (f"What is the sum of the column {column}?", str(sum(in_column))),
        (f"Which row has the largest number in the column {column}? Answer with its label.",
         rows[in_column.index(max(in_column))]),
        (f"Which column has the smallest number in the row {row}? Answer with its label.",
         columns[cells[at_row].index(min(cells[at_row]))]),
    )  # fmt: skip
    question, answer = rng.choice(asked)
    return Task("table", question, (picture,), "number" if answer.isdigit() else "text", answer)

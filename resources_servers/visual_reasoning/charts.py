"""Questions about values in bar, line and pie charts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from resources_servers.visual_reasoning.drawing import INK, PALE, Canvas, Colour
from resources_servers.visual_reasoning.drawing import on_circle as on_rim
from resources_servers.visual_reasoning.tasks import Sheet, Task

GOODS = (
    "apples", "beans", "bread", "cheese", "corn", "dates", "eggs", "fish", "honey", "milk", "nuts", "oats", "olives",
    "pears", "plums", "rice", "salt", "sugar", "tea", "wool",
)  # fmt: skip
TITLES = ("Crates sold in May", "Stock of the warehouse", "Orders of the week", "Deliveries to the market")
SERIES = ("Bergen", "Cusco", "Dakar", "Fez", "Galway", "Hanoi", "Izmir", "Kyoto", "Lima", "Oslo", "Perth", "Quito")
VISITORS = ("Visitors in thousands", "Ships in the harbour", "Letters in thousands", "Weddings per year")
FILLS: tuple[Colour, ...] = (
    (66, 120, 200), (220, 90, 60), (70, 160, 90), (235, 180, 40), (150, 90, 180), (90, 180, 190), (160, 110, 80),
)  # fmt: skip
TOP = 100
"""The highest value on an axis. All values are multiples of five."""
FIVE = "All values are multiples of 5."


class Axes:
    """The axes and the plot area of bar and line charts."""

    LEFT, RIGHT, UPPER, LOWER = 48, 412, 40, 232

    @classmethod
    def height_of(cls, value: float) -> float:
        return cls.LOWER - value / TOP * (cls.LOWER - cls.UPPER)

    @classmethod
    def place_of(cls, at: int, count: int) -> float:
        """Return the x coordinate of the centre of column `at`, counted from 0, if `count` columns share the width."""
        return cls.LEFT + (at + 0.5) / count * (cls.RIGHT - cls.LEFT)

    @classmethod
    def draw(cls, canvas: Canvas, title: str, labels: tuple[str, ...]) -> None:
        canvas.text(((cls.LEFT + cls.RIGHT) / 2, 18), title, 16)
        for value in range(0, TOP + 1, 10):
            height = cls.height_of(value)
            canvas.line([(cls.LEFT, height), (cls.RIGHT, height)], PALE)
            canvas.text((cls.LEFT - 7, height), str(value), 12, anchor="rm")
        canvas.line([(cls.LEFT, cls.UPPER), (cls.LEFT, cls.LOWER), (cls.RIGHT, cls.LOWER)])
        for at, label in enumerate(labels):
            canvas.text((cls.place_of(at, len(labels)), cls.LOWER + 14), label, 13)


@dataclass(frozen=True)
class Bars(Sheet):
    """A bar chart."""

    WIDTH: ClassVar[int] = 424
    HEIGHT: ClassVar[int] = 262

    title: str
    labels: tuple[str, ...]
    values: tuple[int, ...]
    fill: Colour

    def draw(self, canvas: Canvas) -> None:
        Axes.draw(canvas, self.title, self.labels)
        half = (Axes.RIGHT - Axes.LEFT) / len(self.labels) * 0.3
        for at, value in enumerate(self.values):
            x = Axes.place_of(at, len(self.labels))
            canvas.rectangle((x - half, Axes.height_of(value)), (x + half, Axes.LOWER), self.fill, INK)


def bar_chart(rng: random.Random) -> Task:
    labels = tuple(rng.sample(GOODS, rng.randint(4, 7)))
    values = tuple(rng.sample(range(5, TOP + 1, 5), len(labels)))
    picture = Bars(rng.choice(TITLES), labels, values, rng.choice(FILLS))
    (one, first), (other, second) = rng.sample(list(zip(labels, values, strict=True)), 2)
    ranked = sorted(zip(values, labels, strict=True))
    limit = rng.randrange(22, 80, 10)
    asked = (
        (f"What is the value of the bar for {one}? {FIVE}", str(first)),
        (f"By how much do the bars for {one} and {other} differ? {FIVE}", str(abs(first - second))),
        (f"How many bars are higher than {limit}?", str(sum(value > limit for value in values))),
        ("Which bar is the highest? Answer with its label.", ranked[-1][1]),
        ("Which bar is the lowest? Answer with its label.", ranked[0][1]),
        ("Which bar is the second highest? Answer with its label.", ranked[-2][1]),
    )
    question, answer = rng.choice(asked)
    return Task("bar_chart", question, (picture,), "number" if answer.isdigit() else "text", answer)


@dataclass(frozen=True)
class Lines(Sheet):
    """A line chart of two values per year."""

    WIDTH: ClassVar[int] = 424
    HEIGHT: ClassVar[int] = 288

    title: str
    years: tuple[int, ...]
    names: tuple[str, str]
    values: tuple[tuple[int, ...], tuple[int, ...]]
    colours: tuple[Colour, Colour]

    def draw(self, canvas: Canvas) -> None:
        Axes.draw(canvas, self.title, tuple(map(str, self.years)))
        for at, (name, values, colour) in enumerate(zip(self.names, self.values, self.colours, strict=True)):
            count = len(self.years)
            points = [(Axes.place_of(i, count), Axes.height_of(value)) for i, value in enumerate(values)]
            canvas.line(points, colour, 2)
            legend = (120 + 150 * at, 268)
            canvas.line([(legend[0] - 22, legend[1]), (legend[0] + 22, legend[1])], colour, 2)
            for x, y in (*points, legend):
                if at:
                    canvas.rectangle((x - 4, y - 4), (x + 4, y + 4), colour)
                else:
                    canvas.circle((x, y), 5, colour)
            canvas.text((legend[0] + 30, legend[1]), name, 14, anchor="lm")


def line_chart(rng: random.Random) -> Task:
    count, start = rng.randint(5, 7), rng.randint(1990, 2015)
    years = tuple(range(start, start + count))
    one, other = rng.sample(SERIES, 2)
    upper = tuple(rng.sample(range(0, TOP + 1, 5), count))
    # Keep the two values of a year apart, because their marks must not touch.
    lower = tuple(rng.choice([v for v in range(0, TOP + 1, 5) if abs(v - value) >= 10]) for value in upper)
    colours = rng.sample(FILLS[:5], 2)
    picture = Lines(rng.choice(VISITORS), years, (one, other), (upper, lower), (colours[0], colours[1]))
    at = rng.randrange(count)
    wins = sum(first > second for first, second in zip(upper, lower, strict=True))
    asked = (
        (f"What is the value of {one} in {years[at]}? {FIVE}", "number", upper[at]),
        (f"What is the value of {other} in {years[at]}? {FIVE}", "number", lower[at]),
        (f"By how much do {one} and {other} differ in {years[at]}? {FIVE}", "number", abs(upper[at] - lower[at])),
        (f"In which year is {one} at its highest?", "text", years[upper.index(max(upper))]),
        (f"In which year is {one} at its lowest?", "text", years[upper.index(min(upper))]),
        (f"In how many of the years shown is {one} above {other}?", "number", wins),
    )
    question, grader, answer = rng.choice(asked)
    return Task("line_chart", question, (picture,), "number" if grader == "number" else "text", str(answer))


@dataclass(frozen=True)
class Pie(Sheet):
    """A pie chart that is surrounded by a percentage scale."""

    WIDTH: ClassVar[int] = 380
    HEIGHT: ClassVar[int] = 250
    CENTRE: ClassVar[tuple[int, int]] = (126, 126)

    labels: tuple[str, ...]
    shares: tuple[int, ...]
    fills: tuple[Colour, ...]

    def draw(self, canvas: Canvas) -> None:
        share = 0
        for at, (label, part, fill) in enumerate(zip(self.labels, self.shares, self.fills, strict=True)):
            canvas.sector(self.CENTRE, 94, share * 3.6, (share + part) * 3.6, fill)
            share += part
            y = 60 + 26 * at
            canvas.rectangle((266, y - 8), (282, y + 8), fill, INK)
            canvas.text((292, y), label, 15, anchor="lm")
        for percent in range(0, 100, 5):
            is_ten = percent % 10 == 0
            ends = [on_rim(self.CENTRE, radius, percent * 3.6) for radius in (96, 104 if is_ten else 100)]
            canvas.line(ends, width=2 if is_ten else 1)
            if is_ten:
                canvas.text(on_rim(self.CENTRE, 114, percent * 3.6), str(percent), 11)


def pie_chart(rng: random.Random) -> Task:
    count = rng.randint(3, 6)
    cuts = sorted(rng.sample(range(2, 20, 1), count - 1))
    shares = tuple(5 * (end - start) for start, end in zip([0, *cuts], [*cuts, 20], strict=True))
    labels = tuple(rng.sample(GOODS, count))
    picture = Pie(labels, shares, tuple(rng.sample(FILLS, count)))
    one, other = rng.sample(range(count), 2)
    asked = [
        (f"How many percent of the pie are {labels[one]}? {FIVE}", str(shares[one])),
        (f"How many percent of the pie are {labels[one]} and {labels[other]} together? {FIVE}",
         str(shares[one] + shares[other])),
    ]  # fmt: skip
    for word, most in (("largest", max(shares)), ("smallest", min(shares))):
        if shares.count(most) == 1:
            asked.append((f"Which part of the pie is the {word}? Answer with its label.", labels[shares.index(most)]))
    question, answer = rng.choice(asked)
    return Task("pie_chart", question, (picture,), "number" if answer.isdigit() else "text", answer)

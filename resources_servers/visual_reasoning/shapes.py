"""Tasks to count, compare and point at coloured shapes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from resources_servers.visual_reasoning.drawing import Canvas, Colour, Point, on_circle
from resources_servers.visual_reasoning.tasks import Sheet, Task

COLOURS: dict[str, Colour] = {
    "red": (214, 40, 40), "blue": (40, 90, 210), "green": (40, 150, 70), "yellow": (238, 196, 30),
    "purple": (140, 60, 170), "black": (35, 35, 35),
}  # fmt: skip
KINDS = ("circle", "square", "triangle", "star")
CORNERS = {"triangle": 3, "square": 4}
SMALLEST, LARGEST = 11, 21
GAP = 5
SHORTEST_REACH = 4
"""Minimum distance between the target and other shapes, in pixels. If one is nearer, another picture is drawn."""


class Look(NamedTuple):
    """The colour and the kind of a shape, by which a question refers to it."""

    colour: str
    kind: str

    def __str__(self) -> str:
        return f"{self.colour} {self.kind}"


LOOKS = tuple(Look(colour, kind) for colour in COLOURS for kind in KINDS)


@dataclass(frozen=True)
class Shape:
    """A shape at a position in a picture."""

    look: Look
    rgb: Colour
    centre: Point
    radius: int
    turn: int
    """The rotation in degrees, clockwise."""

    def outline(self) -> list[Point]:
        """Return the corners of the shape. A circle is drawn as a polygon with many corners."""
        if self.look.kind == "star":
            radii = (self.radius, self.radius * 0.45)
            return [on_circle(self.centre, radii[at % 2], self.turn + at * 36) for at in range(10)]
        corners = CORNERS.get(self.look.kind, 60)
        # Rotate squares by 45 degrees, because the first corner of an upright square is not at the top.
        first = self.turn + (45 if self.look.kind == "square" else 0)
        return [on_circle(self.centre, self.radius, first + at * 360 / corners) for at in range(corners)]

    @property
    def box(self) -> tuple[int, int, int, int]:
        xs, ys = zip(*self.outline(), strict=True)
        return math.floor(min(xs)), math.floor(min(ys)), math.ceil(max(xs)), math.ceil(max(ys))

    @property
    def reach(self) -> int:
        """Half the length of the box's shorter side, in pixels."""
        left, top, right, bottom = self.box
        return min(right - left, bottom - top) // 2

    def gap_to(self, other: Shape) -> float:
        """Return the distance between the bounding boxes of this shape and another one, in pixels."""
        (left, top, right, bottom), (left_of, top_of, right_of, bottom_of) = self.box, other.box
        return math.hypot(max(left_of - right, left - right_of, 0), max(top_of - bottom, top - bottom_of, 0))

    def is_near(self, other: Shape) -> bool:
        return math.dist(self.centre, other.centre) < self.radius + other.radius + GAP


@dataclass(frozen=True)
class Shapes(Sheet):
    """A picture of shapes that do not touch each other."""

    WIDTH: ClassVar[int] = 320
    HEIGHT: ClassVar[int] = 240

    shapes: tuple[Shape, ...]
    paper: Colour = (255, 255, 255)

    @property
    def background(self) -> Colour:
        return self.paper

    def draw(self, canvas: Canvas) -> None:
        for shape in self.shapes:
            canvas.polygon(shape.outline(), shape.rgb)


def _placed(rng: random.Random, looks: list[Look]) -> Shapes:
    """Return a picture with one shape per item of `looks`, at random places."""
    while True:
        shapes: list[Shape] = []
        for look in looks:
            free = (shape for shape in _places(rng, look) if not any(map(shape.is_near, shapes)))
            if (shape := next(free, None)) is None:
                break
            shapes.append(shape)
        else:
            return Shapes(tuple(shapes), paper=rng.choice(((255, 255, 255), (246, 244, 236), (236, 242, 248))))


def _places(rng: random.Random, look: Look) -> Iterator[Shape]:
    radius, turn = rng.randint(SMALLEST, LARGEST), rng.randint(-12, 12)
    base = COLOURS[look.colour]
    red, green, blue = (min(max(channel + rng.randint(-12, 12), 0), 255) for channel in base)
    for _ in range(100):
        x = rng.randint(radius + 2, Shapes.WIDTH - radius - 2)
        y = rng.randint(radius + 2, Shapes.HEIGHT - radius - 2)
        yield Shape(look, (red, green, blue), (x, y), radius, turn)


class Wanted(NamedTuple):
    """A description of shapes, such as "red circles", "circles" or "red shapes"."""

    colour: str | None
    kind: str | None

    def fits(self, look: Look) -> bool:
        return self.colour in (None, look.colour) and self.kind in (None, look.kind)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.colour, f"{self.kind or 'shape'}s")))


def _wanted(rng: random.Random) -> Wanted:
    colour, kind = rng.choice(list(COLOURS)), rng.choice(KINDS)
    return rng.choice((Wanted(colour, kind), Wanted(colour, None), Wanted(None, kind)))


def _looks(rng: random.Random, wanted: Wanted, hits: int, others: int) -> list[Look]:
    fitting = [look for look in LOOKS if wanted.fits(look)]
    unlike = [look for look in LOOKS if not wanted.fits(look)]
    # Include many shapes that share only the colour or only the kind, because a model may count them by mistake.
    similar = [look for look in unlike if wanted.colour == look.colour or wanted.kind == look.kind] or unlike
    looks = rng.choices(fitting, k=hits) + [rng.choice(rng.choice((similar, unlike))) for _ in range(others)]
    rng.shuffle(looks)
    return looks


def count_shapes(rng: random.Random) -> Task:
    wanted, hits = _wanted(rng), rng.randint(0, 9)
    picture = _placed(rng, _looks(rng, wanted, hits, rng.randint(3, 8)))
    question = f"How many {wanted} does the picture show?"
    return Task("count_shapes", question, (picture,), "number", str(hits))


def compare_shapes(rng: random.Random) -> Task:
    return rng.choice((_more, _missing))(rng)


def _more(rng: random.Random) -> Task:
    wanted, answer = _wanted(rng), rng.choice(("first", "second", "equal"))
    fewer = rng.randint(1, 5)
    more = fewer + rng.randint(1, 2)
    counts = {"first": (more, fewer), "second": (fewer, more), "equal": (fewer, fewer)}[answer]
    pictures = tuple(_placed(rng, _looks(rng, wanted, count, rng.randint(2, 6))) for count in counts)
    question = (
        f"Which of the two pictures shows more {wanted}? Answer 'first' or 'second', or 'equal' if both show the same "
        "number."
    )
    return Task("compare_shapes", question, pictures, "text", answer)


def _missing(rng: random.Random) -> Task:
    looks = rng.choices(LOOKS, k=rng.randint(5, 9))
    left_out = rng.randrange(len(looks))
    rest = [look for place, look in enumerate(looks) if place != left_out]
    rng.shuffle(rest)
    question = (
        "The second picture shows the shapes of the first one at other places and in other sizes, but one of them is "
        "missing. Which one? Answer with its colour and its shape, such as 'green square'. The colours are "
        f"{', '.join(COLOURS)}; the shapes are {', '.join(KINDS)}."
    )
    pictures = (_placed(rng, looks), _placed(rng, rest))
    return Task("compare_shapes", question, pictures, "text", str(looks[left_out]))


def point(rng: random.Random) -> Task:
    reach = 0
    while reach < SHORTEST_REACH:
        picture = _placed(rng, rng.sample(LOOKS, rng.randint(5, 9)))
        target = rng.choice(picture.shapes)
        others = (shape for shape in picture.shapes if shape != target)
        # Limit the reach, so that a point in another shape earns nothing.
        reach = min(target.reach, *(math.floor(target.gap_to(other)) for other in others))
    x, y = target.centre
    size = f"{Shapes.WIDTH} pixels wide and {Shapes.HEIGHT} pixels high"
    question = f"Point at the {target.look} in the picture, which is {size}."
    task = Task("point", question, (picture,), "point", f"{round(x)}, {round(y)}")
    return replace(task, box=target.box, reach=reach)

"""Questions about the values that clocks and gauges show."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, NamedTuple

from resources_servers.visual_reasoning.drawing import INK, PALE, WHITE, Canvas, Colour, on_circle
from resources_servers.visual_reasoning.tasks import Sheet, Task

HANDS: tuple[Colour, ...] = ((30, 30, 34), (150, 30, 40), (30, 60, 140), (20, 100, 60))
FACES: tuple[Colour, ...] = (WHITE, (248, 244, 228), (228, 238, 246))
CLOCK_MINUTES = "1"
FIRST_ANGLE, SPAN = -120, 240
"""The angle at which a gauge's scale begins, and the scale's span, in degrees clockwise from the top."""


@dataclass(frozen=True)
class Clock(Sheet):
    """A clock face with two hands."""

    WIDTH: ClassVar[int] = 240
    HEIGHT: ClassVar[int] = 240
    CENTRE: ClassVar[tuple[int, int]] = (120, 120)

    minutes: int
    """The minutes since twelve o'clock."""
    hand: Colour
    face: Colour
    numerals: int
    """Which hours have a number: 1 means every hour, 3 means every third hour, and 0 means no hour."""

    def draw(self, canvas: Canvas) -> None:
        canvas.circle(self.CENTRE, 114, fill=self.face, outline=INK, width=3)
        for minute in range(60):
            is_hour = minute % 5 == 0
            tick = [on_circle(self.CENTRE, radius, minute * 6) for radius in (100 if is_hour else 105, 110)]
            canvas.line(tick, width=3 if is_hour else 1)
        for hour in range(1, 13):
            if self.numerals and hour % self.numerals == 0:
                canvas.text(on_circle(self.CENTRE, 86, hour * 30), str(hour), 18)
        self._draw_hand(canvas, self.minutes / 2, length=50, width=8)
        self._draw_hand(canvas, self.minutes % 60 * 6, length=98, width=3)
        canvas.circle(self.CENTRE, 6, fill=self.hand)

    def _draw_hand(self, canvas: Canvas, angle: float, *, length: int, width: int) -> None:
        ends = [on_circle(self.CENTRE, radius, angle) for radius in (-12, length)]
        canvas.line(ends, self.hand, width)


def clock(rng: random.Random) -> Task:
    picture = Clock(rng.randrange(720), rng.choice(HANDS), rng.choice(FACES), rng.choice((0, 1, 3)))
    hour, minute = divmod(picture.minutes, 60)
    question = (
        "What time does the clock show? The long thin hand shows the minutes. A time that is off by at most "
        f"{CLOCK_MINUTES} minute counts."
    )
    task = Task("clock", question, (picture,), "time", f"{hour or 12}:{minute:02}")
    return replace(task, tolerance=CLOCK_MINUTES)


class Scale(NamedTuple):
    """The scale of a gauge. Each step between two numbers has `parts` subdivisions."""

    lowest: int
    highest: int
    step: int
    parts: int
    quantity: str
    unit: str


SCALES = (
    Scale(0, 10, 1, 2, "pressure", "bar"),
    Scale(0, 6, 1, 5, "pressure", "bar"),
    Scale(0, 100, 10, 2, "level", "litres"),
    Scale(0, 60, 10, 5, "level", "litres"),
    Scale(0, 200, 20, 4, "speed", "km/h"),
    Scale(0, 120, 20, 4, "speed", "km/h"),
    Scale(0, 30, 5, 5, "voltage", "volts"),
    Scale(100, 400, 50, 5, "power", "watts"),
)


@dataclass(frozen=True)
class Gauge(Sheet):
    """A dial with a scale and one needle."""

    WIDTH: ClassVar[int] = 260
    HEIGHT: ClassVar[int] = 230
    CENTRE: ClassVar[tuple[int, int]] = (130, 128)

    scale: Scale
    thousandths: int
    """The needle's position on the scale, from 0 to 1000."""
    needle: Colour
    face: Colour

    def draw(self, canvas: Canvas) -> None:
        canvas.circle(self.CENTRE, 122, fill=self.face, outline=PALE, width=2)
        canvas.arc(self.CENTRE, 110, FIRST_ANGLE, FIRST_ANGLE + SPAN, width=2)
        steps = (self.scale.highest - self.scale.lowest) // self.scale.step
        for tick in range(steps * self.scale.parts + 1):
            angle = FIRST_ANGLE + SPAN * tick / (steps * self.scale.parts)
            is_step = tick % self.scale.parts == 0
            ends = [on_circle(self.CENTRE, radius, angle) for radius in (94 if is_step else 101, 110)]
            canvas.line(ends, width=3 if is_step else 1)
            if is_step:
                number = self.scale.lowest + tick // self.scale.parts * self.scale.step
                canvas.text(on_circle(self.CENTRE, 78, angle), str(number), 15)
        canvas.text((self.CENTRE[0], 178), self.scale.unit, 16)
        angle = FIRST_ANGLE + SPAN * self.thousandths / 1000
        canvas.line([on_circle(self.CENTRE, radius, angle) for radius in (-16, 100)], self.needle, 3)
        canvas.circle(self.CENTRE, 8, fill=self.needle)


def gauge(rng: random.Random) -> Task:
    needle = rng.choice(((200, 30, 40), (30, 60, 190), (20, 120, 60)))
    picture = Gauge(rng.choice(SCALES), rng.randint(0, 1000), needle, rng.choice(FACES))
    scale = picture.scale
    value = scale.lowest + Decimal(scale.highest - scale.lowest) * picture.thousandths / 1000
    tolerance = Decimal(scale.step) / scale.parts / 2
    asked = f"Which {scale.quantity} does the gauge show, in {scale.unit}?"
    question = f"{asked} A value that is off by at most {tolerance} counts."
    task = Task("gauge", question, (picture,), "number", str(value.normalize() + 0))
    return replace(task, tolerance=str(tolerance))

"""The requests of one rollout, from top to bottom."""

from __future__ import annotations

from typing import NamedTuple

from drawings.canvas import INK, QUIET, Drawing, Point, Tone

WIDTH = 460
HEADS: list[tuple[str, Tone, float, float]] = [
    ("collector", "collector", 60, 92),
    ("agent", "agent", 158, 76),
    ("model", "model", 286, 76),
    ("resources", "resources", 399, 102),
]
"""Each lane: its name, its tone, the middle and the width of its box."""
COLLECTOR, AGENT, MODEL, RESOURCES = range(4)


class Step(NamedTuple):
    sender: int
    receiver: int
    label: str
    is_reply: bool = False


BEFORE = [
    Step(COLLECTOR, AGENT, "1  `/run`"),
    Step(AGENT, RESOURCES, "2  `/seed_session`"),
    Step(RESOURCES, AGENT, "session cookie", is_reply=True),
]
TURNS = [
    Step(AGENT, MODEL, "3  `/v1/responses`"),
    Step(MODEL, AGENT, "tool calls", is_reply=True),
    Step(AGENT, RESOURCES, "4  `/<tool>`"),
    Step(RESOURCES, AGENT, "output", is_reply=True),
]
AFTER = [
    Step(MODEL, AGENT, "answer", is_reply=True),
    Step(AGENT, RESOURCES, "5  `/verify`"),
    Step(RESOURCES, AGENT, "reward", is_reply=True),
    Step(AGENT, COLLECTOR, "6  row", is_reply=True),
]
STEP_PX = 46
FIRST_PX, LAST_PX = 104, 690
HEIGHT = LAST_PX + 82


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "The requests of one rollout")
    for name, tone, x, width in HEADS:
        page.line(Point(x, 64), Point(x, LAST_PX), dashed=True)
        page.box(x - width / 2, 20, width, 44, name, tone=tone)
    y = _steps(page, BEFORE, FIRST_PX)
    page.frame(_x(AGENT) - 38, y - 20, _x(RESOURCES) - _x(AGENT) + 84, STEP_PX * len(TURNS) + 38, "until it answers")
    y = _steps(page, TURNS, y + 40)
    _steps(page, AFTER, y + 32)
    page.box(14, LAST_PX, 250, 62, "7  one line of a file", "scored, or failed with a cause", tone="collector")
    return page.svg()


def _steps(page: Drawing, steps: list[Step], y: float) -> float:
    for step in steps:
        start, end = Point(_x(step.sender), y), Point(_x(step.receiver), y)
        page.arrow(start, end, label=step.label, dashed=step.is_reply, color=QUIET if step.is_reply else INK)
        y += STEP_PX
    return y


def _x(lane: int) -> float:
    return HEADS[lane][2]

"""Three rollouts and a server with two processes: each rollout has its own state, in one of the processes."""

from __future__ import annotations

from drawings.canvas import Box, Drawing, Point

WIDTH, HEIGHT = 440, 360
ROLLOUT_X, PROCESS_X, STATE_X = 16, 204, 312
COOKIE_X = (ROLLOUT_X + 104 + PROCESS_X) / 2
ROW_HEIGHT = 44


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "The states of three rollouts in two processes")
    page.frame(PROCESS_X, 16, 220, 218, "process 1")
    page.frame(PROCESS_X, 254, 220, 90, "process 2")
    for number, (y, lamps) in enumerate(((48, "kitchen"), (112, "hall, study")), start=1):
        page.arrow(_rollout(page, y, number).right(), _house(page, y, lamps).left())
        page.text(COOKIE_X, y + 16, "cookie")
    third, house = _rollout(page, 176, 3), _house(page, 288, "all off")
    arrival = Point(PROCESS_X + 86, 198)
    page.arrow(third.right(), arrival, Point(arrival.x, house.left().y), house.left())
    page.text(COOKIE_X, 192, "cookie")
    page.text(arrival.x - 8, 222, "passed on", anchor="end")
    return page.svg()


def _rollout(page: Drawing, y: float, number: int) -> Box:
    return page.box(ROLLOUT_X, y, 104, ROW_HEIGHT, f"rollout {number}", tone="agent")


def _house(page: Drawing, y: float, lamps: str) -> Box:
    return page.box(STATE_X, y, 104, ROW_HEIGHT, "House", lamps, tone="resources")

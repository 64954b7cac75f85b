"""The steps of a start."""

from __future__ import annotations

from drawings.canvas import FAULT, Box, Drawing, Point, Tone

WIDTH = 440
STEPS: list[tuple[str, str, str, Tone]] = [
    ("1  Read the configuration", "files, env.yaml, command line", "error: nothing is started", "plain"),
    ("2  Bind the ports", "so every address is known", "taken: the message names the port", "plain"),
    ("3  Start the processes", "settings and addresses by a pipe", "ends: its message or its last log lines", "agent"),
    ("4  Wait until all are ready", "each reports when it can serve", "not within 120 s: all are stopped", "agent"),
    ("5  Request `GET /` from each", "a server has to answer, too", "no answer in 10 s: all are stopped", "agent"),
    ("6  Wait for the endpoint", "any HTTP status is an answer", "refused for 60 s: all are stopped", "model"),
    ("7  Keep the servers up", "the run is recorded for ng_status", "dies: restarted, 5 times in 10 minutes", "agent"),
]
BOX, GAP, TOP = 78, 18, 20


def draw() -> str:
    page = Drawing(WIDTH, 2 * TOP + len(STEPS) * (BOX + GAP) - GAP, "The steps of a start")
    above: Box | None = None
    for number, (title, does, fault, tone) in enumerate(STEPS):
        y = TOP + number * (BOX + GAP)
        step = page.box(40, y, 360, BOX, title, does, "", tone=tone)
        page.text(220, y + BOX - 12, fault, color=FAULT, room=350)
        if above is not None:
            page.arrow(above.bottom(), Point(220, y))
        above = step
    return page.svg()

"""The ledger of a run: who writes it, and who reads it."""

from __future__ import annotations

from drawings.canvas import Drawing, Point

WIDTH, HEIGHT = 460, 430


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "The ledger of a run")
    collector = page.box(130, 20, 200, 62, "collector", "one process at a time", tone="collector")
    rows = page.box(16, 150, 190, 104, "rows", "`x.jsonl`", "`x_failures.jsonl`", "`x_…_inputs.jsonl`", tone="outside")
    ledger = page.box(270, 150, 174, 104, "ledger", "`x_run/ledger.jsonl`", "one line per event", tone="agent")
    page.arrow(Point(170, collector.y + collector.height), Point(170, rows.y), label="1  row", side="left")
    page.arrow(Point(300, collector.y + collector.height), Point(300, ledger.y), label="2  event", side="right")
    page.arrow(ledger.left(), rows.right(), dashed=True)
    page.text(238, 196, "place", color="#57606a")
    page.text(238, 222, "digest", color="#57606a")

    page.frame(16, 306, 428, 108, "state of the run = all events, added up")
    for number, (name, line) in enumerate((("resume", "what is left"), ("viewer", "progress"), ("you", "`read`"))):
        x = 30 + 136 * number
        page.box(x, 340, 128, 60, name, line)
    page.arrow(Point(357, ledger.y + ledger.height), Point(357, 306), label="3  read, follow", side="left")
    return page.svg()

"""A run on one machine: its processes, and how they reach each other."""

from __future__ import annotations

from drawings.canvas import Drawing, Point

WIDTH, HEIGHT = 440, 454


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "A run on one machine")
    page.frame(16, 16, 408, 422, "one machine, one user")
    collector = page.box(36, 48, 200, 62, "collector", "or a trainer", tone="collector")
    head = page.box(286, 48, 120, 62, "head server", "port 11000")
    page.arrow(collector.right(), head.left(), dashed=True)

    agent = page.box(36, 168, 370, 56, "agent server", tone="agent")
    page.arrow(collector.bottom(), Point(136, agent.y), label="unix socket", side="right")

    model = page.box(36, 282, 160, 56, "model server", tone="model")
    resources = page.box(236, 282, 170, 56, "resources server", tone="resources")
    page.arrow(Point(116, agent.y + agent.height), model.top(), label="unix socket", side="right")
    page.arrow(Point(321, agent.y + agent.height), resources.top(), label="unix socket", side="left")

    engine = page.box(36, 382, 160, 40, "vLLM", tone="outside")
    page.arrow(model.bottom(), engine.top(), label="port 8000", side="right")
    page.text(321, 366, "all ports at 127.0.0.1")
    return page.svg()

"""A trainer with its engine on one machine and the servers on another: what must reach what."""

from __future__ import annotations

from drawings.canvas import Drawing, Point

WIDTH, HEIGHT = 440, 500


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "A trainer and servers on different machines")
    page.frame(16, 16, 408, 112, "trainer: 10.0.0.5")
    trainer = page.box(36, 48, 150, 62, "trainer", "has the run token", tone="collector")
    engine = page.box(266, 48, 140, 62, "vLLM", "port 8000", tone="outside")
    page.arrow(trainer.right(), engine.left(), label="weights", dashed=True)

    page.frame(16, 222, 408, 262, "servers: 10.0.0.7")
    head = page.box(36, 258, 120, 62, "head server", "port 11100")
    agent = page.box(176, 258, 120, 62, "agent", "port 11101", tone="agent")
    model = page.box(256, 402, 150, 62, "model server", "127.0.0.1", tone="model")
    resources = page.box(36, 402, 150, 62, "resources", "127.0.0.1", tone="resources")
    page.arrow(Point(151, trainer.y + trainer.height), Point(151, head.y), label="token", side="left")
    page.arrow(Point(180, trainer.y + trainer.height), Point(180, agent.y), label="token", side="right")
    page.arrow(Point(276, agent.y + agent.height), Point(276, model.y), label="unix socket", side="right")
    page.arrow(Point(181, agent.y + agent.height), Point(181, resources.y), label="unix socket", side="left")
    up = 390
    page.arrow(Point(up, model.y), Point(up, engine.y + engine.height), label="key", side="left")
    return page.svg()

"""The components of a run and what they send each other."""

from __future__ import annotations

from drawings.canvas import INK, Drawing, Point

WIDTH, HEIGHT = 440, 634


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "The components of a run")
    rows = page.box(16, 20, 110, 66, "rows", "JSONL", tone="outside")
    collector = page.box(160, 20, 120, 66, "collector", "or a trainer", tone="collector")
    results = page.box(314, 20, 110, 66, "rollouts", "JSONL", tone="outside")
    page.arrow(rows.right(), collector.left())
    page.arrow(collector.right(), results.left())

    page.frame(16, 152, 408, 378, "one run")
    agent = page.box(36, 188, 368, 66, "agent server", "runs one rollout from row to reward", tone="agent")
    page.arrow(collector.bottom(), Point(220, agent.y), label="`POST /run`", side="right", both=True)

    model = page.box(36, 358, 150, 86, "model server", "one API for", "every endpoint", tone="model")
    resources = page.box(242, 358, 162, 86, "resources server", "tools, state,", "reward", tone="resources")
    page.arrow(Point(60, agent.y + agent.height), model.top(24 / 150), both=True)
    page.text(70, 312, "`/v1/responses`", anchor="start")
    page.arrow(Point(262, agent.y + agent.height), resources.top(20 / 162), both=True)
    for number, route in enumerate(("`/seed_session`", "`/<tool>`", "`/verify`")):
        page.text(272, 290 + 22 * number, route, anchor="start")
    page.arrow(resources.left(), model.right(), label="judge", dashed=True)

    page.box(36, 466, 368, 50, "head server", "addresses and configuration of the run")
    endpoint = page.box(36, 560, 368, 54, "endpoints", "vLLM, OpenAI, …", tone="outside")
    page.line(model.left(), Point(26, 401), color=INK)
    page.arrow(Point(26, 401), Point(26, 587), endpoint.left())
    return page.svg()

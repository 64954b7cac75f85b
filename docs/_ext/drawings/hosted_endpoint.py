"""An evaluation against hosted endpoints: only the model servers leave the machine."""

from __future__ import annotations

from drawings.canvas import Drawing, Point

WIDTH, HEIGHT = 440, 452


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "An evaluation against hosted endpoints")
    page.frame(16, 16, 408, 310, "your machine")
    collector = page.box(36, 48, 150, 62, "ng eval run", "writes results", tone="collector")
    agent = page.box(246, 48, 160, 62, "agent server", tone="agent")
    page.arrow(collector.right(), agent.left())

    resources = page.box(246, 146, 160, 62, "resources server", "grades", tone="resources")
    page.arrow(agent.bottom(), resources.top())
    policy = page.box(36, 246, 150, 62, "policy_model", "retries, key", tone="model")
    judge = page.box(246, 246, 160, 62, "judge_model", "retries, key", tone="model")
    page.arrow(resources.bottom(), judge.top())
    page.arrow(Point(agent.x, 95), Point(216, 95), Point(216, 128), Point(111, 128), policy.top())

    first = page.box(36, 380, 150, 54, "provider", "of the policy", tone="outside")
    second = page.box(246, 380, 160, 54, "provider", "of the judge", tone="outside")
    page.arrow(policy.bottom(), first.top(), label="HTTPS", side="right")
    page.arrow(judge.bottom(), second.top(), label="HTTPS", side="right")
    return page.svg()

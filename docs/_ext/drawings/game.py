"""The requests of a game: one reset, then a turn of the model and a step, again and again."""

from __future__ import annotations

from drawings.canvas import QUIET, Drawing, Point, Tone

WIDTH, HEIGHT = 440, 420
HEADS: list[tuple[str, Tone, float]] = [("model", "model", 70), ("agent", "agent", 200), ("game", "resources", 370)]
MODEL, AGENT, GAME = (x for _, _, x in HEADS)
STEP_PX = 46
INK = "#1f2328"


def draw() -> str:
    page = Drawing(WIDTH, HEIGHT, "The requests of a game")
    for name, tone, x in HEADS:
        page.line(Point(x, 64), Point(x, HEIGHT - 24), dashed=True)
        page.box(x - 46, 20, 92, 44, name, tone=tone)
    _arrow(page, 104, AGENT, GAME, "1  `/reset`")
    _arrow(page, 104 + STEP_PX, GAME, AGENT, "observation", is_reply=True)
    top = 104 + 1.5 * STEP_PX
    page.frame(16, top, WIDTH - 32, 4.6 * STEP_PX, "until the game is over, or max_steps")
    _arrow(page, top + 62, AGENT, MODEL, "2  messages")
    _arrow(page, top + 62 + STEP_PX, MODEL, AGENT, "turn", is_reply=True)
    _arrow(page, top + 62 + 2 * STEP_PX, AGENT, GAME, "3  `/step`")
    _arrow(page, top + 62 + 3 * STEP_PX, GAME, AGENT, "observation, reward", is_reply=True)
    return page.svg()


def _arrow(page: Drawing, y: float, sender: float, receiver: float, label: str, *, is_reply: bool = False) -> None:
    page.arrow(Point(sender, y), Point(receiver, y), label=label, dashed=is_reply, color=QUIET if is_reply else INK)

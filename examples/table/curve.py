"""Learning curves as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

Curves = dict[str, list[tuple[int, float]]]
"""The step (from 1) and the reward of each point, by the curve's name."""

WIDTH, HEIGHT = 780, 320
LEFT, RIGHT, TOP, BOTTOM = 44, 520, 52, 268
"""The edges of the plot. The names of the curves are to the right of it."""
COLOURS = ("#24292f", "#1f6feb", "#d9480f", "#2b8a3e", "#862e9c")
GREY = "#57606a"
LABEL_HEIGHT = 20


def draw(curves: Curves, title: str, output: Path, axis: str = "training step") -> None:
    """Write a picture of rewards between 0 and 1. The first curve is drawn thick, on top of the others.

    `axis` says what the whole numbers of the points are.
    """
    steps = max(step for points in curves.values() for step, _ in points)
    drawn = [(name, points, colour) for (name, points), colour in zip(curves.items(), COLOURS, strict=False) if points]
    parts = [_text(LEFT, 28, title, GREY, "start", weight=600), *_axes(steps, axis)]
    for name, points, colour in reversed(drawn):
        parts.append(_curve(points, steps, colour, 3.5 if name == drawn[0][0] else 2))
    heights = _apart(_y(points[-1][1]) for _, points, _ in drawn)
    for (name, points, colour), height in zip(drawn, heights, strict=True):
        label, weight = f"{name} {points[-1][1]:.2f}", 600 if name == drawn[0][0] else 400
        parts.append(_text(RIGHT + 14, height + 4, label, colour, "start", weight=weight))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    output.write_text("\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>\n"]), "utf-8")


def _axes(steps: int, axis: str) -> Iterable[str]:
    for reward in (0.0, 0.25, 0.5, 0.75, 1.0):
        yield f'<path d="M{LEFT} {_y(reward)}H{RIGHT}" stroke="#d8dee4"/>'
        yield _text(LEFT - 8, _y(reward) + 4, f"{reward:g}", GREY, "end")
    for step in sorted({1, *range(5, steps + 1, max(5, steps // 30 * 5)), steps}):
        yield _text(_x(step, steps), BOTTOM + 18, str(step), GREY, "middle")
    yield _text((LEFT + RIGHT) / 2, BOTTOM + 38, axis, GREY, "middle")


def _curve(points: Sequence[tuple[int, float]], steps: int, colour: str, width: float) -> str:
    places = [(_x(step, steps), _y(reward)) for step, reward in points]
    line = " ".join(f"{x},{y}" for x, y in places)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="{width}" fill="{colour}"/>' for x, y in places)
    return f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>{dots}'


def _apart(wanted: Iterable[float]) -> list[float]:
    """Return the heights of labels, moved down as far as they would overlap the one above."""
    heights = list(wanted)
    above = -float(LABEL_HEIGHT)
    for number in sorted(range(len(heights)), key=heights.__getitem__):
        heights[number] = above = max(heights[number], above + LABEL_HEIGHT)
    return heights


def _x(step: int, steps: int) -> float:
    return round(LEFT + 12 + (RIGHT - LEFT - 24) * (step - 1) / max(1, steps - 1), 1)


def _y(reward: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * reward, 1)


def _text(x: float, y: float, text: str, colour: str, anchor: str, *, weight: int = 400) -> str:
    style = f'fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'

"""Learning curves of one or more trainings as an SVG picture."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

Curves = dict[str, list[tuple[int, float]]]
"""The step (from 1) and the reward of each point, by the curve's name."""

WIDTH, HEIGHT = 780, 320
LEFT, RIGHT, TOP, BOTTOM = 44, 520, 52, 268
"""The edges of the plot. The names of the curves are to the right of it."""
COLOURS = ("#24292f", "#1f6feb", "#d9480f", "#2b8a3e", "#862e9c")
GREY = "#57606a"
LABEL_HEIGHT = 20


class _Point(NamedTuple):
    """One step of a curve, in all trainings that reached it."""

    step: int
    mean: float
    least: float
    most: float


def draw(
    runs: Sequence[Curves], title: str, output: Path, axis: str = "training step", random: float | None = None
) -> None:
    """Write a picture of rewards between 0 and 1. The first curve is drawn thick, on top of the others.

    Curves of the same name become their mean, with a band from the least to the greatest. `axis` says what the whole
    numbers of the points are. `random`, the reward of a policy that acts at random, is a dashed line.
    """
    curves = {name: _points([run[name] for run in runs]) for name in runs[0]}
    steps = max(point.step for points in curves.values() for point in points)
    drawn = [(name, points, colour) for (name, points), colour in zip(curves.items(), COLOURS, strict=False) if points]
    parts = [_text(LEFT, 28, title, GREY, "start", weight=600), *_axes(steps, axis)]
    if random is not None:
        parts.append(
            f'<path d="M{LEFT} {_y(random)}H{RIGHT}" stroke="{GREY}" stroke-width="2" stroke-dasharray="6 5"/>'
        )
    for name, points, colour in reversed(drawn):
        parts.append(_curve(points, steps, colour, 3.5 if name == drawn[0][0] else 2))
    labels = [(f"{name} {points[-1].mean:.2f}", points[-1].mean, colour) for name, points, colour in drawn]
    if random is not None:
        labels.append((f"random {random:.2f}", random, GREY))
    heights = _apart(_y(reward) for _, reward, _ in labels)
    for (label, _, colour), height in zip(labels, heights, strict=True):
        weight = 600 if label == labels[0][0] else 400
        parts.append(_text(RIGHT + 14, height + 4, label, colour, "start", weight=weight))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    output.write_text("\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>\n"]), "utf-8")


def picture(word: str) -> Path:
    """Parse the path of a picture. Create it before the training, so that its curve is not lost."""
    path = Path(word)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{word} cannot be written ({error.strerror})") from None
    return path


def of_seeds(runs: Sequence[Curves]) -> str:
    """Return the end of a title: how many trainings the picture shows, if there is more than one."""
    return f", {len(runs)} seeds" if len(runs) > 1 else ""


def _points(curves: Sequence[Sequence[tuple[int, float]]]) -> list[_Point]:
    rewards: dict[int, list[float]] = {}
    for step, reward in (point for curve in curves for point in curve):
        rewards.setdefault(step, []).append(reward)
    return [_Point(step, statistics.fmean(each), min(each), max(each)) for step, each in sorted(rewards.items())]


def _axes(steps: int, axis: str) -> Iterable[str]:
    for reward in (0.0, 0.25, 0.5, 0.75, 1.0):
        yield f'<path d="M{LEFT} {_y(reward)}H{RIGHT}" stroke="#d8dee4"/>'
        yield _text(LEFT - 8, _y(reward) + 4, f"{reward:g}", GREY, "end")
    apart = max(5, steps // 30 * 5)
    for step in sorted({1, *range(apart, steps + 1, apart), steps}):
        yield _text(_x(step, steps), BOTTOM + 18, str(step), GREY, "middle")
    yield _text((LEFT + RIGHT) / 2, BOTTOM + 38, axis, GREY, "middle")


def _curve(points: Sequence[_Point], steps: int, colour: str, width: float) -> str:
    places = [(_x(point.step, steps), _y(point.mean)) for point in points]
    line = " ".join(f"{x},{y}" for x, y in places)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="{width}" fill="{colour}"/>' for x, y in places)
    edges = [(point.step, point.most) for point in points] + [(point.step, point.least) for point in reversed(points)]
    band = " ".join(f"{_x(step, steps)},{_y(reward)}" for step, reward in edges)
    shade = f'<polygon points="{band}" fill="{colour}" fill-opacity="0.15"/>' if _varies(points) else ""
    return f'{shade}<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>{dots}'


def _varies(points: Sequence[_Point]) -> bool:
    return any(point.most > point.least for point in points)


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

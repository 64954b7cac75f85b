"""Boxes, arrows and labels, written as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape

Tone = Literal["plain", "collector", "agent", "model", "resources", "outside", "fault"]

CARD = "#f7f8fa"
"""The background, which makes a drawing legible on light and on dark pages."""
INK, QUIET = "#1f2328", "#57606a"
FAULT = "#b42318"
FILL: dict[Tone, str] = {
    "plain": "#ffffff", "collector": "#fff3d6", "agent": "#e3f1d3", "model": "#ddeafc", "resources": "#f1e6fb",
    "outside": "#eceff2", "fault": "#fdeceb",
}  # fmt: skip
EDGE: dict[Tone, str] = {
    "plain": "#8c959f", "collector": "#b07d0a", "agent": "#4f8a10", "model": "#2f6fc4", "resources": "#8250bf",
    "outside": "#8c959f", "fault": FAULT,
}  # fmt: skip
SANS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
MONO = "Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
TITLE_PX, TEXT_PX = 16, 14
LINE_PX = 19
PADDING_PX = 4
SANS_WIDTH, MONO_WIDTH = 0.56, 0.6
"""The mean width of a character, as a share of the font's size."""
ARROW_PX = 8


class Point(NamedTuple):
    x: float
    y: float


class Box(NamedTuple):
    """A rectangle, and the points at which arrows begin and end."""

    x: float
    y: float
    width: float
    height: float

    def top(self, share: float = 0.5) -> Point:
        """Return the point of the upper edge at a share of its length."""
        return Point(self.x + share * self.width, self.y)

    def bottom(self, share: float = 0.5) -> Point:
        return Point(self.x + share * self.width, self.y + self.height)

    def left(self, share: float = 0.5) -> Point:
        return Point(self.x, self.y + share * self.height)

    def right(self, share: float = 0.5) -> Point:
        return Point(self.x + self.width, self.y + share * self.height)


class Drawing:
    """A drawing on a card of its own. Text that would not fit into its box or onto the card is an error."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width = width
        self._height = height
        self._title = title
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, title: str, *lines: str, tone: Tone = "plain"
    ) -> Box:
        """Draw a box with a title and lines of text, all centred."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" fill="{FILL[tone]}" '
            f'stroke="{EDGE[tone]}" stroke-width="1.5"/>'
        )
        baseline = y + (height - LINE_PX * len(lines)) / 2 + 0.36 * TITLE_PX
        room = width - PADDING_PX
        self.text(x + width / 2, baseline, title, size=TITLE_PX, bold=True, room=room)
        for number, line in enumerate(lines, start=1):
            self.text(x + width / 2, baseline + number * LINE_PX + 1, line, room=room)
        return Box(x, y, width, height)

    def frame(self, x: float, y: float, width: float, height: float, label: str) -> Box:
        """Draw a dashed frame around other boxes, with its label inside, at the upper left. Draw it before them."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" fill="none" stroke="{QUIET}" '
            'stroke-width="1.5" stroke-dasharray="6 5"/>'
        )
        self.text(x + 12, y + 21, label, anchor="start", color=QUIET)
        return Box(x, y, width, height)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = TEXT_PX,
        bold: bool = False,
        anchor: Literal["start", "middle", "end"] = "middle",
        color: str = INK,
        room: float | None = None,
    ) -> None:
        """Draw a line of text with its baseline at `y`. Text between backquotes is code. `room` limits its width."""
        pieces = [(piece, number % 2 == 1) for number, piece in enumerate(text.split("`")) if piece]
        sans = SANS_WIDTH * (1.06 if bold else 1)
        width = sum(len(piece) * size * (MONO_WIDTH if is_code else sans) for piece, is_code in pieces)
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        if width > (self._width if room is None else room) or left < 0 or left + width > self._width:
            raise ValueError(f"{self._title}: no room for {text!r} ({width:.0f} px)")
        weight = ' font-weight="600"' if bold else ""
        shown = "".join(
            f'<tspan font-family="{MONO}">{escape(piece)}</tspan>' if is_code else escape(piece)
            for piece, is_code in pieces
        )
        self._parts.append(
            # The outline in the color of the card keeps text legible on lines and edges.
            f'<text x="{x:g}" y="{y:g}" font-family="{SANS}" font-size="{size}"{weight} text-anchor="{anchor}" '
            f'fill="{color}" stroke="{CARD}" stroke-width="{0 if room else 4}" paint-order="stroke">{shown}</text>'
        )

    def line(self, start: Point, end: Point, *, dashed: bool = False, color: str = QUIET) -> None:
        """Draw a line without a head."""
        self._parts.append(
            f'<path d="M{start.x:g} {start.y:g}L{end.x:g} {end.y:g}" stroke="{color}" stroke-width="1.5" fill="none"'
            f"{_dashes(dashed)}/>"
        )

    def arrow(
        self,
        *points: Point,
        label: str = "",
        side: Literal["above", "left", "right"] = "above",
        dashed: bool = False,
        both: bool = False,
        color: str = INK,
    ) -> None:
        """Draw an arrow through these points, at least two, with horizontal and vertical parts only.

        The label is at the middle of the first part: above it, or next to it. `both` adds a head at the start.
        """
        path = "L".join(f"{point.x:g} {point.y:g}" for point in points)
        self._parts.append(f'<path d="M{path}" stroke="{color}" stroke-width="1.5" fill="none"{_dashes(dashed)}/>')
        self._head(points[-2], points[-1], color)
        if both:
            self._head(points[1], points[0], color)
        if label:
            first, second = points[:2]
            x, y = (first.x + second.x) / 2, (first.y + second.y) / 2
            if side == "above":
                self.text(x, y - 6, label)
            else:
                offset = 8 if side == "right" else -8
                self.text(x + offset, y + 5, label, anchor="start" if side == "right" else "end")

    def svg(self) -> str:
        """Return the drawing as the text of an SVG file."""
        edge = f'<rect x="0.5" y="0.5" width="{self._width - 1}" height="{self._height - 1}" rx="10" fill="{CARD}" '
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
                f'width="{self._width}" height="{self._height}" role="img">',
                f"<title>{escape(self._title)}</title>",
                f'{edge}stroke="#d0d7de"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )

    def _head(self, before: Point, tip: Point, color: str) -> None:
        length = max(abs(tip.x - before.x) + abs(tip.y - before.y), 1)
        dx, dy = (tip.x - before.x) / length * ARROW_PX, (tip.y - before.y) / length * ARROW_PX
        corners: Sequence[Point] = (
            tip,
            Point(tip.x - dx - dy / 2, tip.y - dy + dx / 2),
            Point(tip.x - dx + dy / 2, tip.y - dy - dx / 2),
        )
        self._parts.append(
            f'<polygon points="{" ".join(f"{each.x:g},{each.y:g}" for each in corners)}" fill="{color}"/>'
        )


def _dashes(dashed: bool) -> str:
    return ' stroke-dasharray="5 4"' if dashed else ""

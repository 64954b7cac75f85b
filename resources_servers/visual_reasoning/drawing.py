"""Draw anti-aliased pictures on a canvas, and read and write image data."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO
from types import ModuleType
from typing import Any

from nemo_gym import DataError

Colour = tuple[int, int, int]
Point = tuple[float, float]

WHITE: Colour = (255, 255, 255)
INK: Colour = (30, 30, 34)
PALE: Colour = (208, 208, 214)
DATA_URL = "data:image/png;base64,"
PALETTE = 64
"""The number of colours in a PNG file. A palette makes the file several times smaller without a visible difference."""


def pillow(name: str) -> ModuleType:
    """Return a module of Pillow, such as `Image`. Raise `DataError` if Pillow is not installed."""
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise DataError(
            "visual_reasoning: Pillow, which draws the pictures, is not installed. Install it: "
            "pip install 'nemo-gym[vision]'"
        ) from error
    module: ModuleType = getattr(PIL, name)
    return module


@lru_cache
def _font(size: int) -> Any:
    return pillow("ImageFont").load_default(size)


class Canvas:
    """A picture that is being drawn. Coordinates are pixels of the finished picture."""

    def __init__(self, width: int, height: int, background: Colour = WHITE, *, fineness: int = 3) -> None:
        """Create an empty picture. For smooth edges, it is drawn at `fineness` times its size and then reduced."""
        self.size = (width, height)
        self._fineness = fineness
        self._image = pillow("Image").new("RGB", (width * fineness, height * fineness), background)
        self._draw = pillow("ImageDraw").Draw(self._image)

    def polygon(self, points: Iterable[Point], fill: Colour) -> None:
        self._draw.polygon([self._fine(x, y) for x, y in points], fill=fill)

    def line(self, points: Iterable[Point], colour: Colour = INK, width: float = 1) -> None:
        fine = [self._fine(x, y) for x, y in points]
        self._draw.line(fine, fill=colour, width=round(width * self._fineness), joint="curve")

    def rectangle(self, start: Point, end: Point, fill: Colour | None = None, outline: Colour | None = None) -> None:
        self._draw.rectangle([self._fine(*start), self._fine(*end)], fill, outline, width=self._fineness)

    def circle(
        self, centre: Point, radius: float, fill: Colour | None = None, outline: Colour | None = None, width: float = 1
    ) -> None:
        self._draw.ellipse(self._around(centre, radius), fill, outline, width=round(width * self._fineness))

    def sector(self, centre: Point, radius: float, start: float, end: float, fill: Colour) -> None:
        """Draw a sector between two angles in degrees, which are measured clockwise from the top."""
        self._draw.pieslice(self._around(centre, radius), start - 90, end - 90, fill)

    def arc(self, centre: Point, radius: float, start: float, end: float, width: float = 1) -> None:
        fine = round(width * self._fineness)
        self._draw.arc(self._around(centre, radius), start - 90, end - 90, INK, width=fine)

    def text(self, at: Point, text: str, size: int, *, anchor: str = "mm", colour: Colour = INK) -> None:
        """Write one line of text. Pillow's `anchor` defines which point of the text is at `at`: `mm` is its centre."""
        font = _font(size * self._fineness)
        self._draw.text(self._fine(*at), text, fill=colour, font=font, anchor=anchor)

    def png(self, palette: int = PALETTE) -> bytes:
        image = self._image.reduce(self._fineness) if self._fineness > 1 else self._image
        return png_of(image, palette)

    def _fine(self, x: float, y: float) -> Point:
        return x * self._fineness, y * self._fineness

    def _around(self, centre: Point, radius: float) -> list[Point]:
        x, y = centre
        return [self._fine(x - radius, y - radius), self._fine(x + radius, y + radius)]


def png_of(image: Any, palette: int = PALETTE) -> bytes:
    """Return a picture as a PNG file with `palette` colours. The same picture always gives the same bytes."""
    method, dither = pillow("Image").Quantize.FASTOCTREE, pillow("Image").Dither.NONE
    buffer = BytesIO()
    image.quantize(palette, method=method, dither=dither).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def data_url(png: bytes) -> str:
    return DATA_URL + b64encode(png).decode("ascii")


def opened(url: str) -> Any:
    """Return the picture of a data URL. Raise `ValueError` for any other text."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64") or not comma:
        raise ValueError("it is not a data URL with base64")
    image = pillow("Image")
    try:
        return image.open(BytesIO(b64decode(data, validate=True))).convert("RGB")
    except (OSError, SyntaxError, image.DecompressionBombError) as error:
        raise ValueError("its data is not a complete image") from error


def on_circle(centre: Point, radius: float, degrees: float) -> Point:
    """Return the point of a circle at an angle, which is measured clockwise from the top."""
    turn = math.radians(degrees)
    return centre[0] + radius * math.sin(turn), centre[1] - radius * math.cos(turn)

"""Enlarge a part of a picture."""

from __future__ import annotations

from typing import Any, NamedTuple

from nemo_gym import ToolError
from resources_servers.visual_reasoning.drawing import pillow, png_of

LONGEST_SIDE = 768
"""Maximum length of the longer side of an enlarged part, in pixels."""
LARGEST_FACTOR = 8


class Part(NamedTuple):
    """A rectangular part of a picture, in pixels of the picture."""

    x: int
    y: int
    w: int
    h: int


def enlarged(picture: Any, part: Part) -> tuple[bytes, int]:
    """Return an enlarged part of a picture as a PNG file, and the factor by which it is enlarged.

    Raise `ToolError` if the part is not inside of the picture.
    """
    _check(part, *picture.size)
    factor = min(max(LONGEST_SIDE // max(part.w, part.h), 1), LARGEST_FACTOR)
    box = (part.x, part.y, part.x + part.w, part.y + part.h)
    filter_ = pillow("Image").Resampling.LANCZOS
    return png_of(picture.crop(box).resize((part.w * factor, part.h * factor), filter_)), factor


def _check(part: Part, width: int, height: int) -> None:
    for name, start, length, size in (("x", part.x, part.w, width), ("y", part.y, part.h, height)):
        extent = {"x": "w", "y": "h"}[name]
        if not 0 <= start < size:
            raise ToolError(f"{name} must be from 0 to {size - 1}, found {start}. {_size(width, height)}")
        if not 1 <= length <= size - start:
            raise ToolError(
                f"{extent} must be from 1 to {size - start} for {name} = {start}, found {length}. "
                f"{_size(width, height)}"
            )


def _size(width: int, height: int) -> str:
    return f"The picture is {width} pixels wide and {height} pixels high."

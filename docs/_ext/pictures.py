"""Paint the pictures of the documentation: `PYTHONPATH=docs/_ext python -m pictures docs/images`."""

from __future__ import annotations

import random
import re
import sys
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from resources_servers.visual_reasoning.boards import zoom
from resources_servers.visual_reasoning.charts import bar_chart, line_chart, pie_chart
from resources_servers.visual_reasoning.dials import clock, gauge
from resources_servers.visual_reasoning.drawing import png_of
from resources_servers.visual_reasoning.mazes import maze
from resources_servers.visual_reasoning.shapes import count_shapes
from resources_servers.visual_reasoning.tables import table
from resources_servers.visual_reasoning.tasks import Maker, png_file

TUTORIAL = Path(__file__).parents[1] / "tutorials" / "multi_modal.md"
DICE = [6, 1, 3]
"""The second row of the tutorial."""
WIDTH = 860
GAP = 16
SEED = 3


class Row(NamedTuple):
    """Pictures next to each other, scaled to one height."""

    height: int
    kinds: tuple[Maker, ...]


VISUAL_REASONING = (
    Row(230, (clock, gauge, count_shapes)),
    Row(250, (bar_chart, line_chart)),
    Row(240, (pie_chart, table)),
    Row(230, (maze, zoom)),
)


def visual_reasoning() -> Image.Image:
    """Return one picture of nine kinds of tasks."""
    sheet = Image.new("RGB", (WIDTH, GAP + sum(row.height + GAP for row in VISUAL_REASONING)), "white")
    rng = random.Random(SEED)
    top = GAP
    for row in VISUAL_REASONING:
        left = GAP
        for make in row.kinds:
            picture = Image.open(BytesIO(png_file(make(rng).pictures[0]))).convert("RGB")
            width = round(picture.width * row.height / picture.height)
            sheet.paste(picture.resize((width, row.height), Image.Resampling.LANCZOS), (left, top))
            left += width + GAP
        top += row.height + GAP
    return sheet


def dice() -> bytes:
    """Return the tutorial's picture of three dice, as a PNG file that the tutorial's own code draws."""
    found = re.search(
        r"^```python file=resources_servers/dice/drawing.py\n(.*?)^```$", TUTORIAL.read_text("utf-8"), re.M | re.S
    )
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    drawn: bytes = names["png"](names["throw"](DICE))
    return drawn


def main(folder: Path) -> None:
    (folder / "dice.png").write_bytes(dice())
    (folder / "visual_reasoning.png").write_bytes(png_of(visual_reasoning()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

r"""Make rows: questions about pictures that are drawn at random, in eleven kinds.

python resources_servers/visual_reasoning/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.visual_reasoning.boards import zoom
from resources_servers.visual_reasoning.charts import bar_chart, line_chart, pie_chart
from resources_servers.visual_reasoning.dials import clock, gauge
from resources_servers.visual_reasoning.drawing import data_url
from resources_servers.visual_reasoning.mazes import maze
from resources_servers.visual_reasoning.shapes import compare_shapes, count_shapes, point
from resources_servers.visual_reasoning.tables import table
from resources_servers.visual_reasoning.tasks import Maker, Task, png_file

KINDS: tuple[Maker, ...] = (
    clock, bar_chart, compare_shapes, point, zoom, count_shapes, gauge, line_chart, pie_chart, table, maze,
)  # fmt: skip

Part = dict[str, Any]


def prepare(output: Path, count: int = 500, seed: int = 0, split: Split | None = None, embed: bool = False) -> Path:
    """Write `count` rows and return their path. Their pictures are in the folder `<name of output>_images`.

    split: only rows of this split; the two splits have no row in common
    embed: write the pictures into the rows, so that the file needs no folder
    """
    tasks = split_rows(_tasks(random.Random(f"visual reasoning {seed}")), split, count, key=lambda task: task.key)
    as_part = _embedded if embed else _saver(output.with_name(f"{output.stem}_images"))
    write_rows(output, (_row(task, as_part) for task in tasks))
    return output


def _tasks(rng: random.Random) -> Iterator[Task]:
    for make in itertools.cycle(KINDS):
        yield make(rng)


def _row(task: Task, as_part: Callable[[str, bytes], Part]) -> dict[str, Any]:
    pictures = [as_part(task.subset, png_file(picture)) for picture in task.pictures]
    images = [{"type": "input_image", **picture, "detail": "auto"} for picture in pictures]
    content = [{"type": "input_text", "text": task.prompt}, *images]
    return {"responses_create_params": {"input": [{"role": "user", "content": content}]}, **task.grading}


def _embedded(kind: str, png: bytes) -> Part:
    return {"image_url": data_url(png)}


def _saver(folder: Path) -> Callable[[str, bytes], Part]:
    """Return a function that saves a picture and returns its part of the row."""
    folder.mkdir(parents=True, exist_ok=True)

    def save(kind: str, png: bytes) -> Part:
        # Named by its content, so that the rows of an earlier run keep their pictures.
        name = f"{kind}_{hashlib.sha256(png).hexdigest()[:16]}.png"
        (folder / name).write_bytes(png)
        return {"image_path": f"{folder.name}/{name}"}

    return save


if __name__ == "__main__":
    run_prepare(prepare)

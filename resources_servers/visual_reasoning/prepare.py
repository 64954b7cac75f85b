r"""Generate rows with eleven kinds of questions about randomly drawn pictures.

python resources_servers/visual_reasoning/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.data.media_files import MediaFiles
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
    files = MediaFiles(output, "images")
    as_part = _embedded if embed else partial(_saved, files)
    write_rows(output, (_row(task, as_part) for task in tasks))
    files.remove_unused()
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


def _saved(files: MediaFiles, kind: str, png: bytes) -> Part:
    return {"image_path": files.save(png, kind, "png")}


if __name__ == "__main__":
    run_prepare(prepare)

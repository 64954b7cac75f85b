"""Fetch the English files of AGIEval with one right option per question, and write them as rows of mcqa.

python benchmarks/agieval/prepare.py
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nemo_gym import convert_lines, run_prepare
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.jsonl import JsonObject, Line, write_rows
from resources_servers.mcqa.agieval import agieval_row

OUTPUT = Path(__file__).parent / "data" / "agieval.jsonl"
REPOSITORY = "ruixiangcui/AGIEval"
FILES = {
    "aqua-rat": "cff42e946e6082dacb27285dae19cb4be98408ab760fe43c6c462e543be50572",
    "logiqa-en": None,
    "lsat-ar": None,
    "lsat-lr": "c6acb4d843db7b515da4d853e52bb8e6e5f776910f2e35a1805634db24bf94ea",
    "lsat-rc": None,
    "sat-en": None,
    "sat-math": "9cde4c0522b6196852a5562db6e72bf8817b4802822db0fc10013d1becdab3c3",
}
"""The subsets, with the SHA-256 of the files that are known."""


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path."""
    sources = [GitHub(REPOSITORY, f"data/v1/{name}.jsonl", sha256=sha256) for name, sha256 in FILES.items()]
    paths = [fetch(source, folder=output.parent / "source") for source in sources]
    write_rows(output, _rows(paths, skip_bad))
    return output


def _rows(paths: list[Path], skip_bad: bool) -> Iterator[JsonObject]:
    for path in paths:
        yield from convert_lines(path, partial(_row, path), skip_bad=skip_bad)


def _row(path: Path, line: Line) -> JsonObject:
    return {**agieval_row(line, path, "lenient_answer_colon_md"), "subset": path.stem}


if __name__ == "__main__":
    run_prepare(prepare)

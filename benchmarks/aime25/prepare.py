"""Fetch the problems of AIME 2025, and write them as rows of math_with_judge.

python benchmarks/aime25/prepare.py
"""

from __future__ import annotations

from pathlib import Path

from nemo_gym import run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.jsonl import write_rows
from resources_servers.math_with_judge.aime import aime_rows

OUTPUT = Path(__file__).parent / "data" / "aime25.jsonl"
SOURCE = HuggingFace("MathArena/aime_2025", "data/train-00000-of-00001.parquet")


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per problem, and return the output path."""
    table = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, aime_rows(table, id_column="problem_idx", answer=int | str, skip_bad=skip_bad))
    return output


if __name__ == "__main__":
    run_prepare(prepare)

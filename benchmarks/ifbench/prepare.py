"""Fetch IFBench, and write its prompts as rows of instruction_following.

python benchmarks/ifbench/prepare.py
"""

from __future__ import annotations

from pathlib import Path

from nemo_gym import run_prepare
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.jsonl import write_rows
from resources_servers.instruction_following.public_rows import public_rows

OUTPUT = Path(__file__).parent / "data" / "ifbench.jsonl"
SOURCE = GitHub("allenai/IFBench", "data/IFBench_test.jsonl")


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per prompt, and return the output path."""
    write_rows(output, public_rows(fetch(SOURCE, folder=output.parent / "source"), skip_bad=skip_bad))
    return output


if __name__ == "__main__":
    run_prepare(prepare)

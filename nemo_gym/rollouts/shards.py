"""Rollouts of one run that lie in several files: found, compared, and merged into one."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_lines, read_rows, write_rows
from nemo_gym.rollouts.tasks import agent_of
from nemo_gym.schemas.rollout import RolloutKey

COMPANIONS = ("_failures.jsonl", "_materialized_inputs.jsonl", "_reward_profiling.jsonl")
"""What stands beside a file of rollouts and holds none."""
SHOWN = 5


class AggregationJob(BaseModel):
    """Parameters of `ng_aggregate_rollouts`: against servers that are up."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    input_glob: str
    """The files of rollouts; several patterns are parted by commas."""
    output_jsonl_fpath: Path
    """Where the merged rollouts go; the metrics stand beside it."""
    merge_shards: bool = True
    """Also write the rollouts themselves, not only their metrics."""
    overwrite: bool = False
    """Replace an earlier output."""


class _Place(NamedTuple):
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def find_shards(input_glob: str, output: Path) -> list[Path]:
    """The files of rollouts that these patterns name, each once, in the order of patterns and names.

    A pattern passes over what only stands beside rollouts (failures, inputs, profiles), and over `output`.
    Raises `DataError` where a pattern names nothing.
    """
    found: dict[Path, Path] = {}
    for pattern in filter(None, map(str.strip, input_glob.split(","))):
        paths = [Path(name) for name in sorted(glob(str(Path(pattern).expanduser()), recursive=True))]
        shards = [path for path in paths if path.is_file() and not (has_magic(pattern) and _is_beside(path, output))]
        if not shards:
            raise DataError(f"input_glob: '{pattern}' names no file of rollouts (looked in {Path.cwd()}).")
        found.update((path.resolve(), path) for path in shards if path.resolve() not in found)
    if not found:
        raise DataError("input_glob: it is empty. Name the files of rollouts, such as results/shard_*.jsonl.")
    return list(found.values())


def _is_beside(path: Path, output: Path) -> bool:
    return path.name.endswith(COMPANIONS) or path.resolve() == output.resolve()


def check_shards(shards: Sequence[Path]) -> int:
    """How many rollouts there are. Raises `DataError`, with the places, where one is there twice."""
    places: dict[tuple[str | None, int, int], _Place] = {}
    twice: list[str] = []
    count = 0
    for path in shards:
        for line in read_lines(path):
            count += 1
            key = RolloutKey.of_row(line.row)
            if key is None:
                continue
            place = _Place(path, line.number)
            first = places.setdefault((agent_of(line.row), key.task, key.repeat), place)
            if first is not place:
                twice.append(f"{key.task}:{key.repeat} ({first} and {place})")
    if twice:
        more = f" and {len(twice) - SHOWN} more" if len(twice) > SHOWN else ""
        raise DataError(
            f"{len(twice)} rollouts (task:rollout) of one agent are there twice: {', '.join(twice[:SHOWN])}{more}. "
            "Leave one of the files out; or, if they answer different tasks, give the rows of each run "
            "_ng_task_index numbers of their own."
        )
    if not count:
        raise DataError(f"no rollouts in {', '.join(map(str, shards))}.")
    return count


def check_output(shards: Sequence[Path], output: Path, *, overwrite: bool) -> None:
    """Raise `DataError` where merging into this file would lose rollouts."""
    if output.resolve() in {path.resolve() for path in shards}:
        raise DataError(f"{output}: is both one of the files to be merged and the output. Choose another output.")
    if output.exists() and output.stat().st_size and not overwrite:
        raise DataError(f"{output}: holds rollouts already. Add +overwrite=true to replace it, or choose another.")


def merge_shards(shards: Sequence[Path], output: Path) -> int:
    """Write the rollouts of all files into one, whole or not at all, and say how many there are."""
    return write_rows(output, (row for path in shards for row in read_rows(path)))

"""Find, check and merge shards: the outputs of collections that each ran a part of the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from nemo_gym.errors import DataError
from nemo_gym.jsonl import OutputPath, read_lines, read_rows, write_rows
from nemo_gym.paths import resolved
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.row import Row, TaskKey
from nemo_gym.text import counted, first_few

COMPANIONS = ("_failures.jsonl", "_materialized_inputs.jsonl", "_reward_profiling.jsonl")
"""Name endings of a run's files that do not contain rollouts."""
SHOWN = 5


class AggregationJob(BaseModel):
    """Parameters of `ng eval aggregate`, which uses running servers."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    input_glob: str
    """The rollout files: one or more glob patterns, separated by commas."""
    output_jsonl_fpath: OutputPath
    """The file for the merged rollouts. The metrics are written next to it."""
    merge_shards: bool = True
    """Write the merged rollouts, not only their metrics."""
    overwrite: bool = False
    """Replace an earlier output."""


def find_shards(input_glob: str, output: Path) -> list[Path]:
    """Return the rollout files that match these patterns, without duplicates, in the order of patterns and names.

    Skip `output` and files without rollouts (failures, inputs, profiles), unless a pattern is their exact path.
    Raise `DataError` if a pattern does not match any file.
    """
    found: dict[Path, Path] = {}
    for pattern in filter(None, map(str.strip, input_glob.split(","))):
        paths = [Path(name) for name in sorted(glob(str(Path(pattern).expanduser()), recursive=True))]
        shards = [path for path in paths if path.is_file() and not (has_magic(pattern) and _is_skipped(path, output))]
        if not shards:
            raise DataError(
                f"input_glob: '{pattern}' does not match any rollout file (looked in {Path.cwd()}). Check the pattern."
            )
        found.update((resolved(path), path) for path in shards if resolved(path) not in found)
    if not found:
        raise DataError("input_glob is empty. Name the rollout files, such as results/shard_*.jsonl.")
    return list(found.values())


def _is_skipped(path: Path, output: Path) -> bool:
    return path.name.endswith(COMPANIONS) or resolved(path) == resolved(output)


class Contents(NamedTuple):
    """The result of `check_shards`: how many rollouts the shards contain, and which agents ran them."""

    rollouts: int
    agents: list[str]


def check_shards(shards: Sequence[Path]) -> Contents:
    """Count the rollouts, and collect the names of their agents.

    Raise `DataError` if there are no rollouts, or if a rollout occurs twice. The message then names both places.
    """
    agents: set[str] = set()
    places: dict[tuple[str | None, TaskKey], str] = {}
    twice: list[str] = []
    count = 0
    for path in shards:
        for line in read_lines(path):
            count += 1
            row, place = Row(line.row), f"{path}:{line.number}"
            agents.update(filter(None, [row.agent]))
            with suppress(KeyError):  # Results of other programs may lack task numbers.
                first = places.setdefault((row.agent, row.key), place)
                if first is not place:
                    twice.append(f"{row.key} ({first} and {place})")
    if twice:
        raise DataError(
            f"{counted(len(twice), 'rollout')} found twice for the same agent (task:rollout): "
            f"{first_few(twice, SHOWN)}. Leave out one of the files. If the rollouts belong to "
            "different tasks, give the rows of each run different _ng_task_index numbers."
        )
    if not count:
        raise DataError(f"{', '.join(map(str, shards))}: no rollouts found. Pass the output of a collection.")
    return Contents(count, sorted(agents))


def check_output(shards: Sequence[Path], output: Path, *, overwrite: bool) -> None:
    """Raise `DataError` if merging into this file would lose rollouts."""
    if output.exists() and any(output.samefile(path) for path in shards):
        raise DataError(f"{output} is both the output and one of the files to merge. Choose another output.")
    if output.exists() and output.stat().st_size and not overwrite:
        raise DataError(f"{output} already contains rollouts. Add --overwrite to replace it, or choose another file.")


def merge_shards(shards: Sequence[Path], output: Path) -> int:
    """Write the rollouts of all files atomically into one file. Return the number of rollouts."""
    # Remove the ledger of an earlier run. Otherwise, a resumed run would reject the new lines.
    RunFiles(results=output).ledger.unlink(missing_ok=True)
    return write_rows(output, (row for path in shards for row in read_rows(path)))

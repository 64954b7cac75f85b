"""Find the results of runs in files and folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import orjson

from nemo_gym.rollouts.job import RunFiles

MOST_FILES = 100_000
LOOKED_AT_LINES = 20
LOOKED_AT_BYTES = 4 << 20
SIDECAR = re.compile(r"_(failures|materialized_inputs|notes|reward_profiling|validation)\.jsonl$|\.capture\.jsonl$")
COMPANION = re.compile(r"_(run\.json|failures\.jsonl|materialized_inputs\.jsonl)$")
SKIPPED_FOLDERS = re.compile(r"^\.|_logs$|^preprocessed_datasets$|^node_modules$|^__pycache__$")
_RESPONSE, _REWARD = re.compile(rb'(?<!\\)"response"\s*:'), re.compile(rb'(?<!\\)"reward"\s*:')


NOT_READ = "the file is not read, because it is not a regular file, or is a link that leads out of the given paths."


class Found(NamedTuple):
    """A run's results file, found in the given paths."""

    name: str
    """The path relative to the given folder, or the name of the given file, without `.jsonl`."""
    results: Path
    """The absolute path, with links resolved."""


class Problem(TypedDict):
    """The reason why a file or one of its lines is not shown (type `Problem` in api.ts)."""

    file: str
    line: int | None
    message: str


class Discovery:
    """The runs in the given paths. Whether a file contains rollouts is cached until the file changes."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._roots = [path.resolve() for path in paths]
        self._looked_at: dict[Path, tuple[tuple[int, ...], bool]] = {}
        self.problems: list[Problem] = []

    def allows(self, path: Path) -> bool:
        """Return whether a file may be read. True if it is in a given folder, or belongs to the run of a given file.

        A pipe or another special file is not allowed, because opening it could block forever.
        """
        real = Path(os.path.realpath(path))
        is_inside = any(
            real.is_relative_to(root)
            or (real.parent == root.parent and real.name.startswith(f"{root.stem}_"))
            or real.parent == RunFiles(results=root).folder
            for root in self._roots
        )
        return is_inside and (real.is_file() or not os.path.lexists(path))

    def look(self) -> list[Found]:
        """Search the paths, and return the runs that exist now."""
        self.problems = []
        found: dict[Path, Found] = {}
        names: set[str] = set()
        for root in self._roots:
            for name, results in self._in_folder(root) if root.is_dir() else self._in_file(root):
                if results not in found:
                    unique = name if name not in names else str(results.with_suffix(""))
                    names.add(unique)
                    found[results] = Found(unique, results)
        return list(found.values())

    def _in_file(self, path: Path) -> Iterator[Found]:
        if not self.allows(path):
            self._add_problem(path, NOT_READ)
        elif self._is_run(path):
            yield Found(path.stem, path)
        elif not path.exists():
            self._add_problem(path, "the file does not exist any more.")
        else:
            is_empty = not path.stat().st_size
            self._add_problem(path, "the file is empty." if is_empty else "no line is a rollout with a reward.")

    def _in_folder(self, root: Path) -> Iterator[Found]:
        for results in self._candidates(root):
            if not self.allows(results):
                self._add_problem(results, NOT_READ)
            elif self._is_run(results):
                yield Found(str(results.relative_to(root).with_suffix("")), results.resolve())

    def _candidates(self, root: Path) -> Iterator[Path]:
        """Yield possible paths of results files. A file might not exist until its run's first rollout has ended."""
        seen = 0
        for folder, folders, names in os.walk(root, onerror=self._unreadable):
            runs = {name[: found.start()] for name in names if (found := COMPANION.search(name))}
            # A folder such as baseline_run may also be a user's folder of runs.
            own = {f"{run}_run" for run in runs}
            folders[:] = sorted(name for name in folders if name not in own and not SKIPPED_FOLDERS.search(name))
            there = {name for name in names if name.endswith(".jsonl") and not SIDECAR.search(name)}
            there |= {f"{run}.jsonl" for run in runs}
            yield from (Path(folder, name) for name in sorted(there) if not name.startswith("."))
            seen += len(names)
            if seen > MOST_FILES:
                problem = f"more than {MOST_FILES:,} files; the runs in other folders are not shown. Pass a subfolder."
                self._add_problem(root, problem)
                return

    def _unreadable(self, error: OSError) -> None:
        self._add_problem(Path(error.filename), f"the folder cannot be read ({error.strerror}).")

    def _add_problem(self, path: Path, message: str) -> None:
        self.problems.append(Problem(file=str(path), line=None, message=message))

    def _is_run(self, results: Path) -> bool:
        files = RunFiles(results=results)
        if any(path.exists() for path in (files.record, files.materialized, files.failures)):
            return True
        version = version_of(results)
        if version is None:
            return False
        before = self._looked_at.get(results)
        if before and before[0] == version:
            return before[1]
        try:
            is_run = _has_rollout(results)
        except OSError as error:
            self._add_problem(results, f"the file cannot be read ({error.strerror}).")
            return False
        self._looked_at[results] = version, is_run
        return is_run


def version_of(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes when a file is written or replaced, or None if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _has_rollout(path: Path) -> bool:
    """Return whether one of a file's first lines is a rollout with a response and a reward."""
    with path.open("rb") as file:
        left = LOOKED_AT_BYTES
        for _ in range(LOOKED_AT_LINES):
            line = file.readline(left)
            if not line or left <= 0:
                return False
            left -= len(line)
            if left <= 0 and not line.endswith(b"\n"):
                # The line was cut and cannot be parsed, so search it for the fields of a rollout.
                return bool(_RESPONSE.search(line) or _REWARD.search(line))
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(row, dict) and "response" in row and "reward" in row:
                return True
    return False

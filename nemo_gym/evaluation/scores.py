"""Read the numeric fields of a run's rollouts, in one pass over the file. Only the numbers are kept in memory."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import inf, nan
from pathlib import Path

from nemo_gym.errors import DataError
from nemo_gym.evaluation.arrays import Floats, Integers, np
from nemo_gym.jsonl import Line, read_lines
from nemo_gym.metrics import numbers_of
from nemo_gym.metrics.binary import has_no_answer
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.row import TASK_INDEX_KEY, Row

REWARD = "reward"
WORTH_A_PROCESS_BYTES = 32_000_000
"""Two or more files of at least this size are read in parallel. Starting a process takes longer than reading a smaller
file."""
NO_SUBSET = ""
NO_REWARD = "no reward"


@dataclass(frozen=True)
class Field:
    """Statistics of one numeric field: counts and sums per task, and the range over all tasks."""

    counts: Integers
    """For each task, the number of scored rollouts that have the field."""
    totals: Floats
    squares: Floats
    """For each task, the sum of the squared values."""
    low: float
    high: float
    is_binary: bool
    """Whether all values are 0 or 1."""

    @classmethod
    def without_values(cls, tasks: int) -> Field:
        """Return a field that no rollout has. `tasks` is the number of tasks."""
        return _field(np.zeros(0, dtype=np.int64), np.zeros(0), tasks)


@dataclass(frozen=True)
class AgentScores:
    """The numbers of one agent's rollouts, per task."""

    tasks: list[Hashable]
    fields: dict[str, Field]
    """Each numeric field of the rollouts, with the reward first."""
    failed: Integers
    """The number of failed rollouts of each task."""
    subsets: list[str]
    """The name of each task's subset, or an empty string if the task is not in any subset."""
    failed_by_cause: dict[str, int]
    unanswered: int = 0
    """The number of scored rollouts in which the verifier looked for an answer and found none."""

    @property
    def rollouts(self) -> int:
        """The number of scored rollouts."""
        return int(self.fields[REWARD].counts.sum())

    def with_fields_of(self, other: AgentScores) -> AgentScores:
        """Return self. If every rollout failed, return a copy with the fields of `other`, but without values."""
        if self.rollouts:
            return self
        return replace(self, fields={name: Field.without_values(len(self.tasks)) for name in other.fields})


@dataclass(frozen=True)
class RunScores:
    path: Path
    agents: dict[str, AgentScores]


def read_runs(paths: Sequence[Path], *, key: str | None = None, by: str | None = None) -> list[RunScores]:
    """Read several runs with `read_run`. Large files are read in parallel."""
    large = [path for path in paths if path.exists() and path.stat().st_size >= WORTH_A_PROCESS_BYTES]
    workers = min(len(large), os.cpu_count() or 1)
    if workers < 2:
        return [read_run(path, key, by) for path in paths]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(read_run, paths, repeat(key), repeat(by)))


def read_run(path: Path, key: str | None = None, by: str | None = None) -> RunScores:
    """Read the numbers of a run's scored rollouts, and the run's failures from `<stem>_failures.jsonl`.

    A task is identified by its index, or by the row field that `key` names. The field that `by` names contains the
    task's subset. Raise `DataError` if the task of a rollout is unknown, or if a rollout occurs twice.
    """
    agents: dict[str, _Columns] = {}
    failures = RunFiles(results=path).failures
    for line in read_lines(path):
        _columns_of(agents, line).add(_task_of(line, path, key), Row(line.row), by)
    for line in _if_exists(failures):
        _columns_of(agents, line).fail(_task_of(line, failures, key), Row(line.row), by)
    if not agents:
        raise DataError(f"{path}: no rollouts. Pass the output of a collection.")
    return RunScores(path, {name: columns.scores(path, name) for name, columns in agents.items()})


def _if_exists(path: Path) -> Iterator[Line]:
    return read_lines(path) if path.exists() else iter(())


def _columns_of(agents: dict[str, _Columns], line: Line) -> _Columns:
    name = Row(line.row).agent or "rollouts"
    columns = agents.get(name)
    if columns is None:
        columns = agents[name] = _Columns()
    return columns


def _task_of(line: Line, path: Path, key: str | None) -> Hashable:
    field_name = key or TASK_INDEX_KEY
    task = line.row.get(field_name)
    if isinstance(task, str | int):
        return task
    advice = "Pass a field that every row has." if key else "Pass --key with a row field that identifies the task."
    what = "is missing" if task is None else f"is {type(task).__name__}, expected a text or an integer"
    raise DataError(f"{path}:{line.number}: {field_name} {what}, so the rollout's task is unknown. {advice}")


@dataclass
class _Columns:
    """The numbers of one agent's rollouts in the order of the file, eight bytes each."""

    codes: dict[Hashable, int] = field(default_factory=dict)
    task_codes: array[int] = field(default_factory=lambda: array("q"))
    repeats: array[int] = field(default_factory=lambda: array("q"))
    numbers: dict[str, array[float]] = field(default_factory=dict)
    subset_of: dict[int, str] = field(default_factory=dict)
    failures: dict[tuple[int, int], str] = field(default_factory=dict)
    """The cause of the last failed attempt of each rollout."""
    unanswered: int = 0

    def add(self, task: Hashable, row: Row, by: str | None) -> None:
        """Add a rollout. A rollout without a reward counts as failed."""
        if row.failure_class is not None or row.reward is None:
            self.fail(task, row, by)
            return
        code, count = self._code(task, row, by), len(self.repeats)
        self.task_codes.append(code)
        self.repeats.append(self._repeat(row))
        self.unanswered += has_no_answer(row.fields)
        for name, value in numbers_of(row).items():
            column = self.numbers.get(name)
            if column is None:
                column = self.numbers[name] = array("d")
            if len(column) < count:
                column.extend(repeat(nan, count - len(column)))
            column.append(value)

    def fail(self, task: Hashable, row: Row, by: str | None) -> None:
        self.failures[self._code(task, row, by), self._repeat(row)] = row.failure_class or NO_REWARD

    def _code(self, task: Hashable, row: Row, by: str | None) -> int:
        code = self.codes.setdefault(task, len(self.codes))
        if by is not None and code not in self.subset_of and (value := row.fields.get(by)) is not None:
            self.subset_of[code] = str(value)
        return code

    def _repeat(self, row: Row) -> int:
        # Rollouts from other programs may lack the repeat index. Give each of them a unique negative index.
        index = row.repeat_index
        return -1 - len(self.repeats) - len(self.failures) if index is None else index

    def scores(self, path: Path, agent: str) -> AgentScores:
        """Return the scores of the agent's tasks. Raise `DataError` if a rollout has been scored twice."""
        codes, tasks = np.array(self.task_codes, dtype=np.int64), len(self.codes)
        self._check_unique(codes, path, agent)
        scored = set(zip(self.task_codes, self.repeats, strict=True)) if self.failures else set()
        failed = {key: cause for key, cause in self.failures.items() if key not in scored}
        failed_codes = np.array([code for code, _ in failed], dtype=np.int64)
        return AgentScores(
            tasks=list(self.codes),
            fields={
                name: _field(codes, np.frombuffer(column), tasks)
                for name, column in {REWARD: array("d"), **self.numbers}.items()
            },
            failed=np.bincount(failed_codes, minlength=tasks),
            subsets=[self.subset_of.get(code, NO_SUBSET) for code in range(tasks)],
            failed_by_cause=dict(Counter(failed.values())),
            unanswered=self.unanswered,
        )

    def _check_unique(self, codes: Integers, path: Path, agent: str) -> None:
        repeats = np.array(self.repeats, dtype=np.int64)
        order = np.lexsort((repeats, codes))
        codes, repeats = codes[order], repeats[order]
        twice = np.flatnonzero((codes[1:] == codes[:-1]) & (repeats[1:] == repeats[:-1]))
        if len(twice):
            task = list(self.codes)[codes[twice[0]]]
            more = f", and {len(twice) - 1} others" if len(twice) > 1 else ""
            raise DataError(
                f"{path}: the rollout {task}:{repeats[twice[0]]} of {agent} occurs twice{more}. Remove the copies. "
                "If the file has several runs, compare each run's own file."
            )


def _field(codes: Integers, column: Floats, tasks: int) -> Field:
    has_value = ~np.isnan(column)
    values, at = column[has_value], codes[: len(column)][has_value]
    return Field(
        counts=np.bincount(at, minlength=tasks),
        totals=np.bincount(at, weights=values, minlength=tasks).astype(np.float64),
        squares=np.bincount(at, weights=values**2, minlength=tasks).astype(np.float64),
        low=float(values.min(initial=inf)),
        high=float(values.max(initial=-inf)),
        is_binary=bool(np.all((values == 0) | (values == 1))),
    )

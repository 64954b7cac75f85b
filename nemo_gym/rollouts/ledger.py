"""Per-agent counts of a run's planned, scored, failed and unresolved rollouts, read from its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isclose

from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics import numbers_of
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.resume import KeySet, failures_in, keyed_rows
from nemo_gym.schemas.row import TASK_INDEX_KEY, TaskKey


@dataclass
class FailedTask:
    """A task with at least one failed rollout and no scored rollout."""

    task: int
    rollouts: int = 0
    """The number of planned rollouts."""
    failed: Counter[str] = field(default_factory=Counter)
    message: str = ""
    """The message of the last attempt of the task's last failed rollout."""

    def as_dict(self) -> JsonObject:
        """Return the task in the format of the metrics file."""
        return {
            TASK_INDEX_KEY: self.task,
            "num_rollouts": 0,
            "expected_num_rollouts": self.rollouts,
            "failed": dict(self.failed),
            "message": self.message,
        }


@dataclass
class Ledger:
    """The rollouts of one agent: planned = scored + failed + unresolved. Attempts are not counted separately."""

    planned_of: Counter[int] = field(default_factory=Counter)
    """Planned rollouts per task."""
    scored: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Failed rollouts per cause of their last attempt."""
    failed_tasks: list[FailedTask] = field(default_factory=list)
    row_numbers: Counter[str] = field(default_factory=Counter)
    """For each numeric field of the rows, the sum of its values over the scored rollouts."""
    rows_with: Counter[str] = field(default_factory=Counter)
    """For each numeric field of the rows, the number of scored rollouts whose row has the field."""

    @property
    def planned(self) -> int:
        return self.planned_of.total()

    @property
    def unresolved(self) -> int:
        """The number of rollouts that did not start, did not end, or returned a result with `_ng_no_persist`."""
        return self.planned - self.scored - self.failed.total()

    def as_dict(self) -> JsonObject:
        """Return the ledger in the format of the metrics file."""
        return {
            "planned": self.planned,
            "scored": self.scored,
            "failed": dict(self.failed),
            "unresolved": self.unresolved,
        }

    def echoed(self, agent_metrics: JsonObject) -> list[str]:
        """Return the numeric fields that the verifier only copied: their mean equals the mean in the input rows."""
        return sorted(
            name
            for name, count in self.rows_with.items()
            if count == self.scored
            and isinstance(mean := agent_metrics.get(f"mean/{name}"), int | float)
            and isclose(mean, self.row_numbers[name] / count, rel_tol=1e-6)
        )

    def pessimistic(self, mean: float) -> float:
        """Return the mean over scored and failed rollouts, with 0 for each failed one."""
        return mean * self.scored / (self.scored + self.failed.total())


def ledgers_of(files: RunFiles) -> dict[str, Ledger]:
    """Return the ledger of each agent of a run, or an empty mapping if the materialized inputs are missing."""
    failures = failures_in(files.failures)
    scored = KeySet(key for key, _ in keyed_rows(files.results))
    without_score = _tasks_without_score(files, failures)
    ledgers: dict[str, Ledger] = {}
    failed_tasks: dict[int, FailedTask] = {}
    for key, row in keyed_rows(files.materialized):
        ledger = ledgers.setdefault(str(row.agent), Ledger())
        ledger.planned_of[key.task] += 1
        failure = failures.get(key)
        if key in scored:
            ledger.scored += 1
            numbers = numbers_of(row)
            ledger.row_numbers.update(numbers)
            ledger.rows_with.update(numbers.keys())
        elif failure:
            ledger.failed[failure.cause] += 1
        if key.task not in without_score:
            continue
        task = failed_tasks.get(key.task)
        if task is None:
            task = failed_tasks[key.task] = FailedTask(key.task)
            ledger.failed_tasks.append(task)
        task.rollouts += 1
        if failure:
            task.failed[failure.cause] += 1
            task.message = failure.message
    return ledgers


def _tasks_without_score(files: RunFiles, failures: Iterable[TaskKey]) -> set[int]:
    tasks = {key.task for key in failures}
    if tasks:
        for key, _ in keyed_rows(files.results):
            tasks.discard(key.task)
    return tasks

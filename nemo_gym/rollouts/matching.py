"""Match the rows of an input to the tasks of an earlier run: known, new or changed."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.rollouts.job import Shard
from nemo_gym.rollouts.numbering import TaskNumbers, digest_of
from nemo_gym.rollouts.tasks import PlannedRow, TaskPlan
from nemo_gym.schemas.row import SKILLS_REF_KEY, Row, TaskKey, rows_in

SEED_KEY = "seed"
LINES_SEARCHED = 5_000
"""The maximum number of lines that `place_of` searches, because the rollouts wait for the search."""


def content_of(row: Row) -> JsonObject:
    """Return the fields of a row without its task, repeat and attempt numbers and without the seed of a repeat."""
    content = row.without_numbers().fields
    params, extra_body = row.params, row.extra_body
    # Metadata may be null or empty in the input, while a repeat with a seed has metadata.
    metadata = (params or {}).get("metadata") or {}
    if params is None or extra_body is None or not isinstance(metadata, dict):
        return content
    extra_body.pop(SEED_KEY, None)
    kept = {key: value for key, value in metadata.items() if key != "extra_body"}
    if extra_body:
        kept["extra_body"] = dump_json(extra_body, sorts_keys=True).decode()
    without = {key: value for key, value in params.items() if key != "metadata"}
    return {**content, "responses_create_params": {**without, **({"metadata": kept} if kept else {})}}


def content_digest(row: Row) -> int:
    """Return a 64-bit digest of a row's content. The order of the row's fields does not affect the digest."""
    return digest_of(dump_json(content_of(row), sorts_keys=True))


class KnownTask(NamedTuple):
    """A task of the earlier run."""

    digest: int
    """The digest of the content of the task's first repeat."""
    repeats: int
    agent: str


def place_of(plan: TaskPlan, row: Row) -> str | None:
    """Return the file and line of a task's row, or None if the row is not among the first `LINES_SEARCHED` lines.

    If the rows were copied from datasets, return the line in the dataset's file, unless the row has changed there.
    """
    wanted = _sent(row)
    for rows in (plan.placed_in_sources(), plan.placed()):
        with suppress(OSError, DataError):
            for place, planned in islice(rows, LINES_SEARCHED):
                if _sent(planned) == wanted:
                    return place
    return None


def _sent(row: Row) -> JsonObject:
    content = content_of(row.without_outcome())
    return {key: value for key, value in content.items() if key != SKILLS_REF_KEY}


@dataclass
class KnownTasks:
    """The tasks of a materialized file, in file order."""

    tasks: dict[int, KnownTask] = field(default_factory=dict)
    deviating: dict[TaskKey, int] = field(default_factory=dict)
    """The digests of repeats whose content differs from that of their task's first repeat."""

    @classmethod
    def read(cls, materialized: Path) -> KnownTasks:
        known = cls()
        agents: dict[str, str] = {}
        for row in rows_in(materialized):
            key, digest = row.key, content_digest(row)
            before = known.tasks.get(key.task)
            if before is None:
                agent = str(row.agent)
                known.tasks[key.task] = KnownTask(digest, 1, agents.setdefault(agent, agent))
                continue
            known.tasks[key.task] = before._replace(repeats=before.repeats + 1)
            if digest != before.digest:
                known.deviating[key] = digest
        return known

    def differs(self, task: int, planned: PlannedRow, digest: int) -> bool:
        """Return whether any known repeat of this row has a content digest other than `digest`."""
        known = self.tasks[task]
        last = min(planned.first + planned.repeats, known.repeats)
        return any(
            self.deviating.get(TaskKey(task, repeat), known.digest) != digest for repeat in range(planned.first, last)
        )


@dataclass
class Matching:
    """The assignment of input rows to tasks of the run.

    A row's input number is the task number that it would have in a new run.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    """Each row's task number in this run, keyed by the task number that it would have in a new run."""
    changed: dict[int, int] = field(default_factory=dict)
    """For each changed row, the task number that it would have in a new run, keyed by its task number in this run."""
    repeats: Counter[int] = field(default_factory=Counter)
    """The number of repeats of each task that the input requests."""

    def task_of(self, planned: PlannedRow) -> int:
        return planned.task if planned.has_own_number else self.numbers[planned.task]


class _UnmatchedRow(NamedTuple):
    """A row whose content does not match any known task."""

    number: int
    place: tuple[str, int | None]
    """The row's agent, and the last known task of that agent before this row."""


def match(known: KnownTasks, planned: Iterable[PlannedRow], numbers: TaskNumbers, part: Shard) -> Matching:
    """Match the rows of an input to the known tasks by content, regardless of their order.

    An unmatched row counts as changed if a known task is missing at its place, between the same neighbours of the
    same agent. Otherwise it is new, and gets a number of the run's part of the tasks. A row with its own task number
    belongs to that task.
    """
    matching = Matching()
    free = _FreeTasks(known, numbers.taken)
    unmatched: list[_UnmatchedRow] = []
    latest: dict[str, int] = {}
    asked: Counter[int] = Counter()
    for row in planned:
        number, agent = row.task, str(row.row.agent)
        if row.has_own_number:
            matching.repeats[number] += row.repeats
            if number in known.tasks and known.differs(number, row, content_digest(row.row)):
                matching.changed[number] = number
            continue
        asked[number] += row.repeats
        if asked[number] > row.repeats:
            continue  # An identical line has already been handled.
        same = free.take(content_digest(row.row))
        if same is not None:
            latest[agent] = matching.numbers[number] = same
        else:
            unmatched.append(_UnmatchedRow(number, (agent, latest.get(agent))))
    _assign(matching, known, unmatched, numbers.taken, part)
    for number, repeats in asked.items():
        matching.repeats[matching.numbers[number]] += repeats
    return matching


class _FreeTasks:
    """The known tasks, by content, that are not yet matched to an input row."""

    def __init__(self, known: KnownTasks, taken: Container[int]) -> None:
        self._first: dict[int, int] = {}
        # Only tasks with the content of an earlier task get a queue. A queue for each task would take too much memory.
        self._others: dict[int, deque[int]] = {}
        for number, task in known.tasks.items():
            if number in taken:
                continue
            if task.digest in self._first:
                self._others.setdefault(task.digest, deque()).append(number)
            else:
                self._first[task.digest] = number

    def take(self, digest: int) -> int | None:
        """Remove and return the next task with this content, or return None if there is none."""
        number = self._first.pop(digest, None)
        if others := self._others.get(digest):
            self._first[digest] = others.popleft()
        return number


def _assign(
    matching: Matching, known: KnownTasks, unmatched: list[_UnmatchedRow], taken: Container[int], part: Shard
) -> None:
    """Assign each unmatched row to a known task that is missing at the row's place, or else to a new task."""
    if not unmatched:
        return
    found = set(matching.numbers.values()) | set(matching.repeats)
    missing: dict[tuple[str, int | None], deque[int]] = defaultdict(deque)
    latest: dict[str, int] = {}
    for number, task in known.tasks.items():
        if number in found:
            latest[task.agent] = number
        elif number not in taken:
            missing[task.agent, latest.get(task.agent)].append(number)
    free = part.number - 1
    for row in unmatched:
        if candidates := missing.get(row.place):
            task_number = candidates.popleft()
            matching.changed[task_number] = row.number
        else:
            while free in known.tasks or free in taken:
                free += part.of
            task_number, free = free, free + part.of
        matching.numbers[row.number] = task_number

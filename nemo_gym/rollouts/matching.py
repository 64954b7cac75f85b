"""The rows of an input lined up with the tasks that an earlier run made: known, new, or changed."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.numbering import TaskNumbers, digest_of
from nemo_gym.rollouts.resume import TaskKey
from nemo_gym.rollouts.tasks import PlannedRow, agent_of, extra_body_of
from nemo_gym.schemas.rollout import ATTEMPT_INDEX_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY

NUMBER_KEYS = {TASK_INDEX_KEY, ROLLOUT_INDEX_KEY, ATTEMPT_INDEX_KEY}
SEED_KEY = "seed"

Row = dict[str, Any]


def content_of(row: Row) -> Row:
    """What a row asks of its agent: the row less its numbers, and less the seed that a repeat is given."""
    content = {key: value for key, value in row.items() if key not in NUMBER_KEYS}
    params = content.get("responses_create_params")
    metadata = params.get("metadata") if isinstance(params, dict) else None
    if params is None or not isinstance(metadata, dict) or "extra_body" not in metadata:
        return content
    extra_body = extra_body_of(params)
    if extra_body is None:
        return content
    extra_body.pop(SEED_KEY, None)
    kept = {key: value for key, value in metadata.items() if key != "extra_body"}
    if extra_body:
        kept["extra_body"] = orjson.dumps(extra_body, option=orjson.OPT_SORT_KEYS).decode()
    without = {key: value for key, value in params.items() if key != "metadata"}
    return {**content, "responses_create_params": {**without, **({"metadata": kept} if kept else {})}}


def content_digest(row: Row) -> int:
    """64 bits that stand for a row's content, whatever the order of its fields."""
    return digest_of(orjson.dumps(content_of(row), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS))


class KnownTask(NamedTuple):
    """A task of the earlier run."""

    digest: int
    """Of the content of its first repeat."""
    repeats: int
    agent: str


@dataclass
class KnownTasks:
    """The tasks of a materialized file, in its order."""

    tasks: dict[int, KnownTask] = field(default_factory=dict)
    deviating: dict[TaskKey, int] = field(default_factory=dict)
    """The digests of repeats whose content is not that of their task's first one."""

    @classmethod
    def read(cls, materialized: Path) -> KnownTasks:
        """Read the file."""
        known = cls()
        agents: dict[str, str] = {}
        for row in read_rows(materialized):
            key, digest = TaskKey.of(row), content_digest(row)
            before = known.tasks.get(key.task)
            if before is None:
                agent = str(agent_of(row))
                known.tasks[key.task] = KnownTask(digest, 1, agents.setdefault(agent, agent))
                continue
            known.tasks[key.task] = before._replace(repeats=before.repeats + 1)
            if digest != before.digest:
                known.deviating[key] = digest
        return known

    def differs(self, task: int, planned: PlannedRow, digest: int) -> bool:
        """Whether a repeat that is known had another content than this row."""
        known = self.tasks[task]
        last = min(planned.first + planned.repeats, known.repeats)
        return any(
            self.deviating.get(TaskKey(task, repeat), known.digest) != digest for repeat in range(planned.first, last)
        )


@dataclass
class Matching:
    """Which task of the run each row of the input is."""

    numbers: dict[int, int] = field(default_factory=dict)
    """The task of the run, by the number that the input alone would give it."""
    changed: dict[int, int] = field(default_factory=dict)
    """Tasks whose row is another one now, each with the number that the input alone gives it."""
    repeats: Counter[int] = field(default_factory=Counter)
    """How many repeats of each task of the run the input asks for."""

    def task_of(self, planned: PlannedRow) -> int:
        """The task of the run that a row is."""
        own: int = planned.row[TASK_INDEX_KEY]
        return own if planned.has_own_number else self.numbers[own]


class _Stranger(NamedTuple):
    """A row that no known task has the content of."""

    number: int
    place: tuple[str, int | None]
    """Its agent, and the known task of this agent that stands before it."""


def match(known: KnownTasks, planned: Iterable[PlannedRow], numbers: TaskNumbers) -> Matching:
    """Line the rows of an input up with the known tasks, by content; where a row stands does not matter.

    A row that nobody knows has changed where a known one is missing at its place, between the same neighbours of the
    same agent, and is new elsewhere. Rows that bring the number of their task are that task.
    """
    matching = Matching()
    free = _FreeTasks(known, numbers.taken)
    strangers: list[_Stranger] = []
    latest: dict[str, int] = {}
    asked: Counter[int] = Counter()
    for row in planned:
        number, agent = row.row[TASK_INDEX_KEY], str(agent_of(row.row))
        if row.has_own_number:
            matching.repeats[number] += row.repeats
            if number in known.tasks and known.differs(number, row, content_digest(row.row)):
                matching.changed[number] = number
            continue
        asked[number] += row.repeats
        if asked[number] > row.repeats:
            continue  # the same line once more
        same = free.take(content_digest(row.row))
        if same is not None:
            latest[agent] = matching.numbers[number] = same
        else:
            strangers.append(_Stranger(number, (agent, latest.get(agent))))
    _settle(matching, known, strangers, numbers.taken)
    for number, repeats in asked.items():
        matching.repeats[matching.numbers[number]] += repeats
    return matching


class _FreeTasks:
    """The known tasks that no row of the input has been found to be, by content."""

    def __init__(self, known: KnownTasks, taken: Container[int]) -> None:
        self._first: dict[int, int] = {}
        # Few tasks have the content of another one, and a queue for each would take most of the memory.
        self._others: dict[int, deque[int]] = {}
        for number, task in known.tasks.items():
            if number in taken:
                continue
            if task.digest in self._first:
                self._others.setdefault(task.digest, deque()).append(number)
            else:
                self._first[task.digest] = number

    def take(self, digest: int) -> int | None:
        """The next task of this content."""
        number = self._first.pop(digest, None)
        if others := self._others.get(digest):
            self._first[digest] = others.popleft()
        return number


def _settle(matching: Matching, known: KnownTasks, strangers: list[_Stranger], taken: Container[int]) -> None:
    """Give every stranger its task: a known one that is missing at its place, or a new one."""
    if not strangers:
        return
    found = set(matching.numbers.values()) | set(matching.repeats)
    missing: dict[tuple[str, int | None], deque[int]] = defaultdict(deque)
    latest: dict[str, int] = {}
    for number, task in known.tasks.items():
        if number in found:
            latest[task.agent] = number
        elif number not in taken:
            missing[task.agent, latest.get(task.agent)].append(number)
    free = 0
    for stranger in strangers:
        if candidates := missing.get(stranger.place):
            task_number = candidates.popleft()
            matching.changed[task_number] = stranger.number
        else:
            while free in known.tasks or free in taken:
                free += 1
            task_number, free = free, free + 1
        matching.numbers[stranger.number] = task_number

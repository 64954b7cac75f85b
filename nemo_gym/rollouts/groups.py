"""Tasks whose rollouts are graded together, as soon as all of them have ended: their settings, order and grading."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import LEAST_GROUP
from nemo_gym.data.media import with_media
from nemo_gym.errors import ConfigError, DataError, EnvironmentFailed, JudgeFailed, RolloutError
from nemo_gym.jsonl import loads_exact, parse_row, read_lines_at
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.ledger import events_in
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.resume import EarlierRun
from nemo_gym.rollouts.runner import AttemptLimits, Runner, failed, record_of, run_to_its_end
from nemo_gym.schemas.rollout import GROUP_PATH
from nemo_gym.schemas.row import TASK_INDEX_KEY, Row, marks_of_failure, mirror_mask, offsets_by, rows_at, rows_in

NO_GROUP = "the reward depends on the other rollouts of the task, but the rollout does not belong to a group"

Stored = Callable[[], Row]
"""A function that reads a stored rollout. Call it only once."""

_NOT_SENT = frozenset({"ng_model_call_capture", "ng_agent_observations", "ng_trajectory"})
"""Fields of a rollout that may be longer than the rest of it, and that graders do not read."""


class GroupKey(NamedTuple):
    """The resources server and the task number that the rollouts of a group have in common."""

    server: str
    task: int


@dataclass
class _Group:
    """The rollouts of one task, by their repeat numbers."""

    key: GroupKey
    repeats: list[int]
    pending: set[int]
    """The repeats that are running or still have to run."""
    scored: dict[int, Stored] = field(default_factory=dict)
    """The repeats that already have a reward. The others are compared with them."""
    absent: dict[int, str] = field(default_factory=dict)
    """The repeats that are not compared, with the reasons."""
    stored: dict[int, Stored] = field(default_factory=dict)
    """The repeats that an earlier run has left ungraded."""
    ungraded: dict[int, tuple[Row, Record]] = field(default_factory=dict)
    """The ended repeats, each with the row that was sent."""

    def bodies(self) -> list[Mapping[str, object]]:
        """Return the verify requests of the rollouts to compare, in the order of the repeats."""
        bodies = {repeat: _body_of(row, _as_answered(record.row)) for repeat, (row, record) in self.ungraded.items()}
        sent, _ = next(iter(self.ungraded.values()))
        for repeat, read in self.scored.items():
            bodies[repeat] = _body_of(sent.of_repeat(repeat), Row({"response": read().response}))
        return [bodies[repeat] for repeat in sorted(bodies)]

    def missing(self) -> list[str]:
        """Return the members that are not compared, each with its reason."""
        return [f"{n}: {self.absent[each]}" for n, each in enumerate(self.repeats) if each in self.absent]


class _Verifier(Runner):
    """A runner for groups. It returns the reply of the resources server without taking it for a rollout."""

    PATH: ClassVar[str] = GROUP_PATH
    FAILURE: ClassVar[type[RolloutError]] = EnvironmentFailed

    def __init__(self, client: ServerClient, *, rollout_timeout_s: float) -> None:
        super().__init__(client, rollout_timeout_s=rollout_timeout_s, loads=loads_exact)
        # Do not capture model calls, because they belong to the rollouts.
        self._capture = None

    def _record(self, row: Row, result: Row) -> Record:
        return Record(Outcome.UNRESOLVED, result)


class GroupedTasks:
    """The tasks in progress whose rollouts are graded together."""

    def __init__(
        self,
        client: ServerClient,
        servers: Mapping[str, str],
        limits: AttemptLimits,
        on_lost: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`servers` maps each agent to the resources server that verifies its groups.

        `on_lost` is awaited if that server was lost.
        """
        self._servers = servers
        self._limits = limits
        self._on_lost = on_lost
        self._verifier = _Verifier(client, rollout_timeout_s=limits.timeout_s)
        self._groups: dict[GroupKey, _Group] = {}

    def key_of(self, row: Row) -> GroupKey | None:
        """Return the key of a rollout's group, or None if the rollout is not graded in a group."""
        server = self._servers.get(str(row.agent)) if self._servers else None
        return None if server is None or row.task_index is None else GroupKey(server, row.task_index)

    def expect(
        self,
        row: Row,
        repeats: Iterable[int],
        *,
        pending: Iterable[int] | None = None,
        scored: Mapping[int, Stored] | None = None,
        absent: Mapping[int, str] | None = None,
        stored: Mapping[int, Stored] | None = None,
    ) -> None:
        """Register the task of a row, whose rollouts are about to start, if they are graded in a group.

        `repeats` are the repeat numbers of the task. `pending` are those that still have to run, by default all. Each
        other repeat is in `scored`, or in `absent` with a reason. Pending repeats in `stored` have already ended.
        """
        ordered, key = sorted(repeats), self.key_of(row)
        if key is not None:
            left = set(ordered if pending is None else pending)
            self._groups[key] = _Group(key, ordered, left, dict(scored or {}), dict(absent or {}), dict(stored or {}))

    def stored(self, row: Row) -> Record | None:
        """Return the record of a rollout that an earlier run has left ungraded. Return None for any other rollout."""
        group = self._group_of(row)
        read = None if group is None else group.stored.pop(row.key.repeat, None)
        result = None if read is None else read()
        # If a later attempt has failed, the stored rollout was graded without success.
        is_current = result is not None and result.attempt == row.attempt
        return Record(Outcome.UNRESOLVED, result, is_ungraded=True) if result is not None and is_current else None

    async def end(self, row: Row, record: Record) -> AsyncIterator[tuple[Row, Record]]:
        """Take an ended rollout. Yield each rollout that now has its final record, with the row that was sent.

        An ungraded rollout gets its final record when the last rollout of its group has ended.
        """
        group = self._group_of(row)
        if group is None:
            yield row, failed(record.row, EnvironmentFailed(NO_GROUP)) if record.is_ungraded else record
            return
        repeat = row.key.repeat
        group.pending.discard(repeat)
        is_last = not group.pending
        if record.is_ungraded:
            group.ungraded[repeat] = row, record
        else:
            if record.outcome is Outcome.SCORED:
                group.scored[repeat] = lambda: record.row
            else:
                group.absent[repeat] = record.cause or str(record.outcome)
            yield row, record
        if is_last:
            del self._groups[group.key]
            results = await self._results_of(group) if group.ungraded else []
            for (sent, ungraded), result in zip(group.ungraded.values(), results, strict=True):
                fields = {**ungraded.row.fields, **result, **ungraded.row.identity}
                if fields.get("mask_sample") is True:
                    mirror_mask(fields)
                graded = record_of(ungraded.row, Row(fields), group.key.server, GROUP_PATH)
                graded.timing = ungraded.timing
                yield sent, graded

    def _group_of(self, row: Row) -> _Group | None:
        key = self.key_of(row)
        return None if key is None or row.repeat_index is None else self._groups.get(key)

    async def _results_of(self, group: _Group) -> list[Mapping[str, object]]:
        """Return the fields to add to each ungraded rollout: its result, or the failure of the verification."""
        try:
            results = await self._verified(group)
        except (RolloutError, DataError) as error:
            server = getattr(error, "server", None) or group.key.server
            failure = marks_of_failure(JudgeFailed.failure_class, str(error), server, is_of_judge=True)
            return [failure] * len(group.ungraded)
        return [results[repeat] for repeat in group.ungraded]

    async def _verified(self, group: _Group) -> dict[int, Mapping[str, object]]:
        server, missing = group.key.server, group.missing()
        compared = sorted({*group.ungraded, *group.scored})
        if len(compared) < LEAST_GROUP:
            raise JudgeFailed(
                f"{server}: only one of the {len(group.repeats)} rollouts of task {group.key.task} has a response, so "
                f"it cannot be compared; missing: {', '.join(missing) or 'none'}"
            )
        # Use a thread, because stored rollouts and media are read from files.
        bodies = await asyncio.to_thread(group.bodies)
        sent = Row({"agent_ref": {"name": server}, "bodies": bodies})
        record = await run_to_its_end(
            self._verifier, sent, self._limits, on_repeat=lambda record: None, on_lost=self._on_lost
        )
        if record.outcome is Outcome.FAILED:
            raise JudgeFailed(str(record.row.failure_message), server=record.row.failure_server)
        results = record.row.fields.get("results")
        if not isinstance(results, list) or len(results) != len(compared):
            raise JudgeFailed(f"{server}: {GROUP_PATH} did not return {len(compared)} results")
        of_group = ((repeat, Row(result)) for repeat, result in zip(compared, results, strict=True))
        return {each: row.with_group(len(group.repeats), len(compared), missing).fields for each, row in of_group}


def _body_of(sent: Row, ended: Row) -> Mapping[str, object]:
    """Return the verify request of an ended rollout."""
    own = {key: value for key, value in ended.fields.items() if key not in _NOT_SENT}
    return {**with_media(sent.without_outcome().without_policy().fields), **own}


def _as_answered(ended: Row) -> Row:
    """Return a rollout as its agent returned it, even if the recorded tokens have replaced the agent's output."""
    answered, output = ended.without_outcome(), (ended.token_capture or {}).get("agent_output")
    return answered.with_fields({"response": {**(ended.response or {}), "output": output}}) if output else answered


def check_groups(path: Path, grouped: Mapping[str, str], settings: CollectionSettings) -> bool:
    """Return whether the repeats of a task in a file are verified together.

    `grouped` maps each agent to the server that verifies its groups. Raise `ConfigError` if a group could never be
    complete with these settings, or `DataError` with these rows.
    """
    sizes = group_sizes(rows_in(path), grouped) if grouped else {}
    if not sizes:
        return False
    (_, agent), least = min(sizes.items(), key=lambda item: item[1])
    together = f"'{grouped[agent]}' verifies all repeats of a task together"
    if least < LEAST_GROUP:
        raise ConfigError(
            f"num_repeats: {together}, but a task of agent '{agent}' has only one repeat. Add --num-repeats 2 or more."
        )
    for key in ("interleave_repeats", "until_halfwidth"):
        if getattr(settings, key):
            raise ConfigError(f"{key}: {together}, so they have to start together. Remove {key}.")
    return True


def group_sizes(rows: Iterable[Row], grouped: Mapping[str, str]) -> dict[tuple[int, str], int]:
    """Return the number of rows of each grouped task, keyed by the task's number and the agent of its first row.

    Raise `DataError` if a task has rows of agents that different servers verify. Each server would wait for the
    rollouts of the others.
    """
    sizes: Counter[tuple[int, str]] = Counter()
    agents: dict[int, str] = {}
    for row in rows:
        task, agent = row.key.task, str(row.agent)
        first = agents.setdefault(task, agent)
        if grouped.get(first) != grouped.get(agent):
            raise DataError(
                f"task {task} has rows of the agents '{first}' and '{agent}', which cannot be verified together, as a "
                f"server requires. Give the rows of each agent different {TASK_INDEX_KEY} numbers."
            )
        if agent in grouped:
            sizes[task, first] += 1
    return sizes


class TaskOrder:
    """The pending rollouts of a run in the order of their tasks."""

    def __init__(self, files: RunFiles, earlier: EarlierRun, groups: GroupedTasks) -> None:
        self._files = files
        self._earlier = earlier
        self._groups = groups
        self._left = 0

    def continues_a_group(self) -> bool:
        """Return whether the next rollout belongs to the same group as the previous rollout."""
        return self._left > 0

    def rows(self) -> Iterator[Row]:
        """Yield the pending rollouts, and register each grouped task before its first rollout."""
        scored, ungraded = self._scored_offsets(), self._offsets_in(self._files.ungraded)
        for rows in rows_by_task(self._files.materialized):
            owed = list(self._earlier.owed(rows))
            is_grouped = self._groups.key_of(rows[0]) is not None
            if owed and is_grouped:
                task = rows[0].key.task
                self._expect(rows, owed, scored.get(task, {}), ungraded.get(task, {}))
            for number, row in enumerate(owed, start=1):
                self._left = len(owed) - number if is_grouped else 0
                yield row

    def _expect(
        self, rows: list[Row], owed: list[Row], scored: Mapping[int, int], ungraded: Mapping[int, int]
    ) -> None:
        repeats, pending = {row.key.repeat: row.key for row in rows}, {row.key.repeat for row in owed}
        failures = self._earlier.failures
        self._groups.expect(
            rows[0],
            repeats,
            pending=pending,
            scored=stored_at(self._files.results, scored),
            absent={n: failures[key].cause for n, key in repeats.items() if n not in pending and n not in scored},
            stored=stored_at(self._files.ungraded, ungraded),
        )

    def _offsets_in(self, path: Path) -> dict[int, dict[int, int]]:
        """Return the file offsets of ended rollouts, by task and repeat, for tasks that have pending rollouts."""
        return offsets_of(path, self._pending()) if path.exists() and path.stat().st_size else {}

    def _scored_offsets(self) -> dict[int, dict[int, int]]:
        """Return the same for the results, from the ledger, because the results may be large."""
        found: dict[int, dict[int, int]] = {}
        pending = self._pending() if len(self._earlier.scored) else frozenset()
        for event in events_in(self._files.ledger, "results") if pending else ():
            if event["task"] in pending:
                found.setdefault(event["task"], {})[event["repeat"]] = event["offset"]
        return found

    def _pending(self) -> Set[int]:
        """Return the tasks that have pending rollouts."""
        return {row.key.task for row in self._earlier.owed(rows_in(self._files.materialized))}


def offsets_of(path: Path, tasks: Container[int]) -> dict[int, dict[int, int]]:
    """Return the file offsets of these tasks' rollouts, by task and repeat."""
    found: dict[int, dict[int, int]] = {}
    for offset, (number, raw) in read_lines_at(path):
        key = Row(parse_row(raw, path, number)).key
        if key.task in tasks:
            found.setdefault(key.task, {})[key.repeat] = offset
    return found


def stored_at(path: Path, offsets: Mapping[int, int]) -> dict[int, Stored]:
    """Return functions that read the rollouts at these offsets of a file, by repeat."""
    return {repeat: partial(next, rows_at(path, [offset])) for repeat, offset in offsets.items()}


def rows_by_task(path: Path) -> Iterator[list[Row]]:
    """Yield each task's rows as a list. They need not be adjacent in the file, because a resumed run appends rows."""
    for offsets in offsets_by(path, lambda key: key.task).values():
        yield list(rows_at(path, offsets))

"""Rollouts of a task that are graded together, as soon as all of them have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import LEAST_GROUP
from nemo_gym.data.media import with_media
from nemo_gym.errors import DataError, EnvironmentFailed, JudgeFailed, RolloutError
from nemo_gym.jsonl import JsonObject, loads_exact
from nemo_gym.rollouts.attempts import AttemptLimits, run_to_its_end
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.runner import Runner, failed, record_of
from nemo_gym.schemas.rollout import GROUP_PATH
from nemo_gym.schemas.row import (
    AGENT_REF_KEY,
    CAPTURE_KEY,
    FAILURE_CLASS_KEY,
    FAILURE_SERVER_KEY,
    GROUP_RESULT_KEY,
    JUDGE_ERROR_KEY,
    MASK_KEY,
    OBSERVATIONS_KEY,
    TOKEN_CAPTURE_RESULT_KEY,
    TRAJECTORY_KEY,
    Row,
    mirror_mask,
)

NO_GROUP = "the reward depends on the other rollouts of the task, but the rollout does not belong to a group"

Stored = Callable[[], Row]
"""A function that reads a stored rollout. Call it only once."""

_NOT_SENT = frozenset({CAPTURE_KEY, OBSERVATIONS_KEY, TRAJECTORY_KEY})
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

    def bodies(self) -> list[JsonObject]:
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
                if fields.get(MASK_KEY) is True:
                    mirror_mask(fields)
                yield sent, record_of(ungraded.row, Row(fields), group.key.server, GROUP_PATH)

    def _group_of(self, row: Row) -> _Group | None:
        key = self.key_of(row)
        return None if key is None or row.repeat_index is None else self._groups.get(key)

    async def _results_of(self, group: _Group) -> list[JsonObject]:
        """Return the fields to add to each ungraded rollout: its result, or the failure of the verification."""
        try:
            results = await self._verified(group)
        except (RolloutError, DataError) as error:
            server = getattr(error, "server", None) or group.key.server
            failure = {FAILURE_CLASS_KEY: JudgeFailed.failure_class, JUDGE_ERROR_KEY: str(error)}
            return [{**failure, FAILURE_SERVER_KEY: server}] * len(group.ungraded)
        return [results[repeat] for repeat in group.ungraded]

    async def _verified(self, group: _Group) -> dict[int, JsonObject]:
        server, missing = group.key.server, group.missing()
        compared = sorted({*group.ungraded, *group.scored})
        if len(compared) < LEAST_GROUP:
            raise JudgeFailed(
                f"{server}: only one of the {len(group.repeats)} rollouts of task {group.key.task} has a response, so "
                f"it cannot be compared; missing: {', '.join(missing) or 'none'}"
            )
        # Use a thread, because stored rollouts and media are read from files.
        bodies = await asyncio.to_thread(group.bodies)
        sent = Row({AGENT_REF_KEY: {"name": server}, "bodies": bodies})
        record = await run_to_its_end(
            self._verifier, sent, self._limits, on_repeat=lambda record: None, on_lost=self._on_lost
        )
        if record.outcome is Outcome.FAILED:
            raise JudgeFailed(str(record.row.failure_message), server=record.row.failure_server)
        results = record.row.fields.get("results")
        if not isinstance(results, list) or len(results) != len(compared):
            raise JudgeFailed(f"{server}: {GROUP_PATH} did not return {len(compared)} results")
        about = {GROUP_RESULT_KEY: {"size": len(group.repeats), "compared": len(compared), "missing": missing}}
        return {repeat: {**result, **about} for repeat, result in zip(compared, results, strict=True)}


def _body_of(sent: Row, ended: Row) -> JsonObject:
    """Return the verify request of an ended rollout."""
    own = {key: value for key, value in ended.fields.items() if key not in _NOT_SENT}
    return {**with_media(sent.without_outcome().without_policy().fields), **own}


def _as_answered(ended: Row) -> Row:
    """Return a rollout as its agent returned it, even if the recorded tokens have replaced the agent's output."""
    answered, output = ended.without_outcome(), ended.fields.get(TOKEN_CAPTURE_RESULT_KEY, {}).get("agent_output")
    return answered.with_fields({"response": {**(ended.response or {}), "output": output}}) if output else answered

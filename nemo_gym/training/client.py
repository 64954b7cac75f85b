"""Rollouts for a trainer: one complete group for each task, in the order in which the groups are completed."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import LEAST_GROUP
from nemo_gym.data.media import check_embedded
from nemo_gym.errors import InvalidTask, UsageError
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.collector import allowed_connections
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.job import AttemptSettings
from nemo_gym.rollouts.recorded_tokens import RecordedTokens, kept_until_the_end
from nemo_gym.rollouts.resume import max_attempts
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import AttemptLimits
from nemo_gym.schemas.row import ROLLOUT_ID_KEY, TASK_INDEX_KEY, Row
from nemo_gym.text import did_you_mean_or_all
from nemo_gym.training.batch import Batch, FailedRollouts, Task
from nemo_gym.training.checkpoint import group_of, state_of
from nemo_gym.training.group import Group, Rollout
from nemo_gym.training.heads import head_at
from nemo_gym.training.loop_thread import LoopThread, ResultT
from nemo_gym.training.policies import Policies, PolicyRunner
from nemo_gym.training.record import TrainingRecord
from nemo_gym.training.selection import Keep, Selection

OnStale = Literal["mask", "drop", "cancel"]


class TrainingClient:
    """A client that runs rollouts on the servers of a run. Use it as an async context manager, in one event loop."""

    def __init__(
        self,
        head: str = "http://127.0.0.1:11000",
        *,
        in_flight: int = 1024,
        failed_rollouts: FailedRollouts = "mask",
        rollout_timeout_s: float = 1800.0,
        attempts: int | None = None,
        run_token: str | None = None,
        ca: str | Path | None = None,
        record: str | Path | None = None,
        max_staleness: int | None = None,
        on_stale: OnStale = "mask",
    ) -> None:
        """Configure the client. It connects to the run when the `async with` block is entered.

        `head` is the address that `ng_run` prints. `in_flight` limits how many rollouts run at once. `attempts`
        limits how often a rollout is tried if a server is lost or overloaded. Its default is that of rollout
        collection. `run_token` may be omitted on the machine of the run, where it is found automatically.

        `ca` is for a run with TLS. It is the file of the CA certificate, or `system` for the trust store of the
        operating system. By default, the CA of a run on this machine is found automatically, and `system` is used
        for other runs.

        `record` is a file to which the rollouts are appended, such as `results/train.jsonl`. `ng view`, `ng eval show`
        and `ng eval events` read it like that of any other run, also during the training.

        `max_staleness` is by how many versions the newest policy may be ahead of a rollout when its group is yielded.
        Staler rollouts are masked or dropped from their group. With `cancel`, those that still run are also cancelled
        as soon as they are too stale, and count as failed; ended ones are masked.
        """
        self._head = head_at(head, ca)
        self._in_flight = in_flight
        self._failed_rollouts = failed_rollouts
        self._settings = AttemptSettings(rollout_timeout_s=rollout_timeout_s, max_attempts=attempts)
        self._run_token = run_token
        self._client: ServerClient | None = None
        self._tokens: RecordedTokens | None = None
        self._policies = Policies()
        self._max_staleness = math.inf if max_staleness is None else max_staleness
        self._on_stale = on_stale
        self._output = None if record is None else Path(record)
        self._record: TrainingRecord | None = None
        self._opened_files = ExitStack()
        self._carried: deque[Group] = deque()
        """Complete groups that an earlier call of `rollouts` had no need of."""
        self._owed: deque[JsonObject] = deque()
        """The rows of the groups that an earlier call has cancelled."""
        self._batches: set[Batch] = set()
        self.selection: Selection | None = None
        """What has become of the groups of the latest call of `rollouts`."""
        self._rows = 0
        """The number of rows read so far."""
        self._tasks = 0
        """The number of tasks so far, in all batches. It is the index of the next task.

        The index must be unique, because it is a part of the rollout's id."""

    async def __aenter__(self) -> Self:
        self._client = await asyncio.to_thread(ServerClient.load_from_global_config, self._head, self._run_token)
        if self._client.address_book.settings.model_cache is not None:
            await self._client.aclose()
            raise UsageError(
                f"the run at {self._head.url} answers model calls from a cache "
                f"(model_cache), so it cannot be used for training. Start it without that key."
            )
        if self._output is not None:
            try:
                recording = TrainingRecord.opened(self._output, self._client.shared_run.subject)
                self._record = self._opened_files.enter_context(recording)
            except BaseException:
                await self._client.aclose()
                raise
            self._tasks = max(self._tasks, self._record.next_task)
        self._tokens = RecordedTokens.of(self._client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        try:
            if client is not None:
                async with kept_until_the_end(self._tokens):
                    await client.aclose()
        finally:
            self._record = None
            self._opened_files.__exit__(kind, error, at)

    @property
    def agents(self) -> list[str]:
        """The names of the run's agents, which a row can select with `agent_ref`."""
        return list(self._opened().agent_names())

    @property
    def policy_version(self) -> int:
        """The version of the newest policy: 0 before the first call of `set_policy`."""
        return self._policies.version

    def staleness(self, rollout: Rollout) -> int:
        """Return by how many versions the newest policy is ahead of the one with which the rollout began."""
        return self.policy_version - rollout.policy_version

    def set_policy(
        self,
        urls: str | Sequence[str] | None = None,
        model: str | None = None,
        *,
        api_key: str | None = None,
        version: int | None = None,
    ) -> None:
        """Begin a new version of the policy, by default the next number. It samples all rollouts that begin later.

        Each rollout uses one of the `urls` (each up to and including `/v1`), this model and this key from its start to
        its end. The default model is the configured one, but the configured key is only sent to the configured
        address. If `urls` is omitted, the current addresses stay. If `urls`, `model` and `api_key` are all omitted,
        the new version means that the weights at these addresses were replaced in place, also for running rollouts.

        Raises `UsageError` if the run does not allow rows to name a policy.
        """
        if urls is None and model is None and api_key is None:
            self._policies.replace(None, version)
            self.note(policy_version=self.policy_version)
            return
        if not self._opened().address_book.settings.allow_policy_override:
            raise UsageError(
                f"set_policy: the run at {self._head.url} does not allow other policies. "
                f"Start it with --allow-policy-override true."
            )
        self._policies.replace(self._policies.changed(urls, model, api_key), version)
        self.note(policy_version=self.policy_version)

    def note(self, **fields: object) -> None:
        """Add facts about the training, such as `step=3, loss=0.2`, to the record. Without a record, do nothing."""
        if self._record is not None:
            self._record.note(fields)

    def state_dict(self) -> JsonObject:
        """Return what a new client needs to continue after a step, as JSON, for its `load_state_dict`.

        It has the version of the policy, the groups and rows that are carried over to the next step, and in `rows` the
        number of rows read so far.
        """
        return {
            "policy_version": self.policy_version,
            "rows": self._rows,
            "tasks": self._tasks,
            "carried": [state_of(group) for group in self._carried],
            "owed": list(self._owed),
        }

    def load_state_dict(self, state: JsonObject) -> None:
        """Continue from the state of an earlier client. Call it before the first rollouts.

        The next version of the policy is greater than that of the state, and the groups that were carried over come
        first. The caller leaves out the rows read before, such as with `islice(rows, state["rows"], None)`.
        """
        if self._tasks > (self._record.next_task if self._record else 0):
            raise UsageError("load_state_dict: this client has already begun rollouts. Load the state before them.")
        if (version := state["policy_version"]) > self.policy_version:
            self._policies.replace(None, version)
        self._rows, self._tasks = state["rows"], max(self._tasks, state["tasks"])
        self._carried = deque(map(group_of, state["carried"]))
        self._owed = deque(state["owed"])

    async def rollouts(
        self,
        rows: Iterable[JsonObject],
        repeats: int = 1,
        sampling: Mapping[str, object] | None = None,
        *,
        wanted: int | None = None,
        keep: Keep = lambda group: True,
        most: float = 3.0,
        group_timeout_s: float | None = None,
    ) -> AsyncGenerator[Group, None]:
        """Yield the group of each row as soon as all of its `repeats` rollouts have ended.

        `sampling` overrides fields of every row's `responses_create_params`, such as `temperature`. A row without an
        `agent_ref` is run by the run's agent, if the run has only one. Rows are read as their rollouts begin, so
        `rows` may be endless, such as a `Curriculum`. If it has a method `report`, it gets each group. While
        `in_flight` finished rollouts wait for the trainer, no new rollout begins. If the iterator is closed early,
        running rollouts are cancelled.

        With `wanted`, the iterator ends after so many groups for which `keep` returns True, such as
        `lambda group: group.std > 0`. The others are dropped, and further rows begin in their place, up to `most`
        times `wanted`. Then the groups that still run are cancelled. Their rows, and complete groups that are too
        many, come first in the next call. `selection` counts all of them.

        `group_timeout_s` limits the seconds of a group from the begin of its first rollout. What still runs then is
        cancelled and counts as failed, so the group comes with the rollouts that have ended.

        Raises `InvalidTask` for a row without a valid agent, and `LaunchError` if the run has ended. If
        `failed_rollouts` is "raise", also raises the failure of a rollout.
        """
        if repeats < 1:
            raise UsageError(f"repeats={repeats}: each task needs at least one rollout.")
        client = self._opened()
        grouped = client.address_book.task_rules.grouped
        runner = PolicyRunner(
            client, self._policies, rollout_timeout_s=self._settings.rollout_timeout_s, tokens=self._tokens,
            max_staleness=self._max_staleness if self._on_stale == "cancel" else math.inf,
        )  # fmt: skip
        limits = AttemptLimits.of(self._settings, max_attempts(self._settings))
        watch = RunWatch(client, advice="Start it again, and open a new client.")
        groups = GroupedTasks(client, grouped, limits, watch.confirm)
        at_once = allowed_connections(self._in_flight)
        if wanted is not None and (wanted < 1 or most < 1):
            raise UsageError(f"wanted={wanted}, most={most:g}: both must be at least 1.")
        report: Callable[[Group], None] = getattr(rows, "report", lambda group: None)
        chosen = self.selection = Selection(math.inf if wanted is None else wanted, keep, most)
        batch = Batch(runner, groups, limits, watch, in_flight=at_once, failed_rollouts=self._failed_rollouts,
                      record=self._record, group_timeout_s=group_timeout_s,
                      may_begin=lambda: chosen.may_begin)  # fmt: skip
        while self._carried and not chosen.is_complete:
            chosen.kept, chosen.carried = chosen.kept + 1, chosen.carried + 1
            yield self._fresh(self._carried.popleft())
        if chosen.is_complete:
            return
        tasks = islice(self._prepared(chain(self._again(), self._read(rows)), sampling or {}, repeats), chosen.limit)
        running = asyncio.create_task(batch.run(tasks, repeats))
        self._batches.add(batch)
        try:
            while not chosen.is_complete:
                if (group := await batch.next_group()) is None:
                    await running
                    return
                report(group)
                if chosen.takes(group := self._fresh(group)):
                    yield group
            left = list(batch.left())
            for each in left:
                report(each)
            self._carried += filter(keep, left)
            self._owed += (each.row for each in batch.open)
            chosen.cancelled = len(batch.open)
        finally:
            self._batches.discard(batch)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def cancel(self, row: JsonObject) -> int:
        """Cancel what still runs of the groups of a row, and return how many rollouts that are.

        They count as failed, so the group comes at once, with the rollouts that have ended.
        """
        return sum(batch.cancel(row) for batch in self._batches)

    def _fresh(self, group: Group) -> Group:
        """Return a group with the rollouts masked or dropped that are too stale by now."""
        if math.isinf(self._max_staleness):
            return group
        if self._on_stale == "drop":
            fresh = (each for each in group.rollouts if self.staleness(each) <= self._max_staleness)
            return replace(group, rollouts=tuple(fresh))
        for each in group.rollouts:
            if self.staleness(each) > self._max_staleness:
                each.result["mask_sample"] = True
        return group

    def _again(self) -> Iterator[JsonObject]:
        """Yield the rows whose rollouts an earlier step has cancelled."""
        while self._owed:
            yield self._owed.popleft()

    def _read(self, rows: Iterable[JsonObject]) -> Iterator[JsonObject]:
        for row in rows:
            self._rows += 1
            yield row

    def _opened(self) -> ServerClient:
        if self._client is None:
            raise UsageError("the client is not open: use 'async with TrainingClient(…) as client'.")
        return self._client

    def _prepared(self, rows: Iterable[JsonObject], sampling: Mapping[str, object], repeats: int) -> Iterator[Task]:
        agents, grouped = self.agents, self._opened().address_book.task_rules.grouped
        for number, given in enumerate(rows):
            row = Row(given)
            name = row.agent or (agents[0] if len(agents) == 1 and "agent_ref" not in given else None)
            if name not in agents:
                problem = f"agent '{name}' is not part of this run" if name else "agent_ref does not name an agent"
                raise InvalidTask(f"rows[{number}]: {problem}.{did_you_mean_or_all(str(name), agents, 'agents')}")
            if name in grouped and repeats < LEAST_GROUP:
                raise UsageError(
                    f"repeats={repeats}: '{grouped[name]}' verifies all rollouts of a task together, so repeats must "
                    f"be at least {LEAST_GROUP}."
                )
            check_embedded(given, f"rows[{number}]")
            fields = {"agent_ref": {"type": "responses_api_agents", "name": name}, **given}
            fields["responses_create_params"] = {**(row.params or {}), **sampling}
            # Drop an explicit id, because the repeats of a row must not share an id. Each rollout then gets an id made
            # from the task number and the repeat number.
            fields.pop(ROLLOUT_ID_KEY, None)
            fields[TASK_INDEX_KEY] = self._tasks
            self._tasks += 1
            yield Task(given, Row(fields).without_outcome())


class SyncTrainingClient:
    """A `TrainingClient` for trainers without an event loop. Rollouts run in a thread while the trainer trains."""

    def __init__(self, head: str = "http://127.0.0.1:11000", **settings: Any) -> None:
        """Take the same arguments as `TrainingClient`."""
        self._client = TrainingClient(head, **settings)
        self._loop = LoopThread()
        self._unfinished: set[AsyncGenerator[Group, None]] = set()
        """The iterators of groups that have not been exhausted or closed."""

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._loop.result_of(self._client.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            for groups in list(self._unfinished):
                self._loop.result_of(groups.aclose())
            self._loop.result_of(self._client.__aexit__(kind, error, at))
        finally:
            self._loop.stop()

    def rollouts(
        self,
        rows: Iterable[JsonObject],
        repeats: int = 1,
        sampling: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> Iterator[Group]:
        """Yield groups; see `TrainingClient.rollouts`."""
        self._check_open()
        groups = self._client.rollouts(rows, repeats, sampling, **settings)
        self._unfinished.add(groups)
        try:
            while (group := self._loop.result_of(_next_of(groups))) is not None:
                yield group
                self._check_open()
        finally:
            self._unfinished.discard(groups)
            if self._loop.is_running:
                self._loop.result_of(groups.aclose())

    @property
    def selection(self) -> Selection | None:
        """What has become of the groups of the latest call of `rollouts`."""
        return self._client.selection

    @property
    def policy_version(self) -> int:
        """The version of the newest policy; see `TrainingClient.policy_version`."""
        return self._client.policy_version

    def staleness(self, rollout: Rollout) -> int:
        """See `TrainingClient.staleness`."""
        return self._client.staleness(rollout)

    def set_policy(self, *urls: Any, **settings: Any) -> None:
        """Begin a new version of the policy; see `TrainingClient.set_policy`."""
        self._within_loop(lambda: self._client.set_policy(*urls, **settings))

    def cancel(self, row: JsonObject) -> int:
        """Cancel what still runs of the groups of a row; see `TrainingClient.cancel`."""
        return self._within_loop(lambda: self._client.cancel(row))

    def state_dict(self) -> JsonObject:
        """Return the state of the client between two steps; see `TrainingClient.state_dict`."""
        return self._client.state_dict()

    def load_state_dict(self, state: JsonObject) -> None:
        """Continue from the state of an earlier client; see `TrainingClient.load_state_dict`."""
        self._client.load_state_dict(state)

    def note(self, **fields: object) -> None:
        """Add facts about the training to the record; see `TrainingClient.note`."""
        self._within_loop(lambda: self._client.note(**fields))

    def _within_loop(self, call: Callable[[], ResultT]) -> ResultT:
        async def within_loop() -> ResultT:
            return call()

        self._check_open()
        return self._loop.result_of(within_loop())

    def _check_open(self) -> None:
        if not self._loop.is_running:
            raise UsageError("the client is not open: use 'with SyncTrainingClient(…) as client'.")


async def _next_of(groups: AsyncGenerator[Group, None]) -> Group | None:
    return await anext(groups, None)

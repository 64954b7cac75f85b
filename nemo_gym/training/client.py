"""Rollouts for a trainer: whole groups of one task each, in the order in which they are completed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import failure_of_row
from nemo_gym.config.access import POLICY_OVERRIDE_KEY
from nemo_gym.config.model_cache import MODEL_CACHE_KEY
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.context.group import LEAST_GROUP
from nemo_gym.errors import InvalidTask, RolloutCancelled, RolloutError, UsageError
from nemo_gym.http.internal import split_url
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.attempts import AttemptLimits, run_to_its_end
from nemo_gym.rollouts.collector import allowed_connections, first_of
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.job import AttemptSettings
from nemo_gym.rollouts.recorded_tokens import RecordedTokens, kept_until_the_end
from nemo_gym.rollouts.resume import max_attempts
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.schemas.row import AGENT_REF_KEY, ROLLOUT_ID_KEY, TASK_INDEX_KEY, Row
from nemo_gym.training.loop_thread import LoopThread
from nemo_gym.training.policies import VERSION_AT_END_KEY, VERSION_KEY, Policies, PolicyRunner
from nemo_gym.training.trajectory import Trajectory, sequences_of, trajectory_of

FailedRollouts = Literal["mask", "drop", "raise"]
"""`mask` keeps failed rollouts in their group, without a reward. `drop` leaves them out. `raise` ends the batch."""


@dataclass(frozen=True)
class Rollout:
    """One rollout of a group."""

    result: JsonObject
    """The graded row, or the row with its failure."""
    reward: float | None
    """None if it failed; a failure is never a zero."""
    failure: RolloutError | None

    @property
    def policy_version(self) -> int:
        """The version of the policy when the rollout, or its last attempt, began."""
        version: int = self.result[VERSION_KEY]
        return version

    @property
    def policy_version_at_end(self) -> int:
        """The version of the same policy when the rollout ended. It is greater if weights were replaced in place."""
        version: int = self.result[VERSION_AT_END_KEY]
        return version

    def trajectory(self) -> Trajectory:
        """Return its training sequence; see `trajectory_of`."""
        return trajectory_of(self.result)

    def sequences(self) -> list[Trajectory]:
        """Return its training sequences; see `sequences_of`."""
        return sequences_of(self.result)


@dataclass(frozen=True)
class Group:
    """All rollouts of one task, for algorithms such as GRPO that compare them with each other."""

    row: JsonObject
    """The task, as the trainer passed it."""
    rollouts: tuple[Rollout, ...]
    """In the order of their repeats."""
    failed: int
    """How many rollouts of the task failed, including those that were dropped."""

    @property
    def rewards(self) -> list[float]:
        """The rewards of the rollouts that did not fail."""
        return [each.reward for each in self.rollouts if each.reward is not None]


class TrainingClient:
    """Runs rollouts on the servers of a run. Use it as an async context manager, within one event loop."""

    def __init__(
        self,
        head: str = "http://127.0.0.1:11000",
        *,
        in_flight: int = 1024,
        failed_rollouts: FailedRollouts = "mask",
        rollout_timeout_s: float = 1800.0,
        attempts: int | None = None,
        run_token: str | None = None,
    ) -> None:
        """Set the run and the limits.

        `head` is the address that `ng_run` prints. `in_flight` limits how many rollouts run at once. `attempts` is how
        often a rollout is tried that met a lost or overloaded server; by default as in a collection. The run's token
        is found by itself on the machine of the run.
        """
        host, port, _, _ = split_url(head)
        self._head = BaseServerConfig(host=host, port=port)
        self._in_flight = in_flight
        self._failed_rollouts = failed_rollouts
        self._settings = AttemptSettings(rollout_timeout_s=rollout_timeout_s, max_attempts=attempts)
        self._run_token = run_token
        self._client: ServerClient | None = None
        self._tokens: RecordedTokens | None = None
        self._policies = Policies()
        self._tasks = 0
        """The number of tasks so far. Their index is part of the rollout's id, so it must be unique."""

    async def __aenter__(self) -> Self:
        self._client = await asyncio.to_thread(ServerClient.load_from_global_config, self._head, self._run_token)
        if self._client.address_book.model_cache is not None:
            await self._client.aclose()
            raise UsageError(
                f"the run at http://{self._head.host}:{self._head.port} answers model calls from a cache "
                f"({MODEL_CACHE_KEY}), so it cannot be used for training. Start it without that key."
            )
        self._tokens = RecordedTokens.of(self._client)
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        if client is not None:
            async with kept_until_the_end(self._tokens):
                await client.aclose()

    @property
    def agents(self) -> list[str]:
        """The names of the run's agents."""
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

        A rollout stays with one of the `urls` (each up to and including `/v1`) from its beginning to its end, and with
        this model and key. The default model is the configured one, but the configured key is only sent to the
        configured address. Without `urls`, the current addresses stay. Without any arguments, the weights there were
        replaced in place, also for the rollouts under way.

        Raises `UsageError` if the run does not allow rows to name a policy.
        """
        if urls is None and model is None and api_key is None:
            self._policies.replace(None, version)
            return
        if not self._opened().address_book.allows_policy_override:
            raise UsageError(
                f"set_policy: the run at http://{self._head.host}:{self._head.port} does not allow other policies. "
                f"Start it with +{POLICY_OVERRIDE_KEY}=true."
            )
        self._policies.replace(self._policies.changed(urls, model, api_key), version)

    async def rollouts(
        self, rows: Iterable[JsonObject], repeats: int = 1, sampling: Mapping[str, object] | None = None
    ) -> AsyncGenerator[Group, None]:
        """Yield the group of each row as soon as all of its `repeats` rollouts have ended.

        `sampling` overrides fields of every row's `responses_create_params`, such as `temperature`. A row without an
        `agent_ref` is run by the only agent of the run. Rows are read as their rollouts begin, so there may be any
        number of them. Rollouts wait to begin while the trainer has `in_flight` finished ones still to take. If the
        iterator is closed early, running rollouts are cancelled.

        Raises `InvalidTask` for a row without a valid agent, `LaunchError` if the run has ended, and the failure of a
        rollout with `failed_rollouts="raise"`.
        """
        if repeats < 1:
            raise UsageError(f"repeats={repeats}: each task needs at least one rollout.")
        client = self._opened()
        grouped = client.address_book.grouped
        runner = PolicyRunner(
            client,
            self._policies,
            rollout_timeout_s=self._settings.rollout_timeout_s,
            tokens=self._tokens,
            groups=GroupedTasks(client, grouped) if grouped else None,
        )
        limits = AttemptLimits.of(self._settings, max_attempts(self._settings))
        watch = RunWatch(client, advice="Start it again, and open a new client.")
        batch = _Batch(runner, limits, watch, allowed_connections(self._in_flight), self._failed_rollouts)
        running = asyncio.create_task(batch.run(self._prepared(rows, sampling or {}, repeats), repeats))
        try:
            while (group := await batch.next_group()) is not None:
                yield group
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _opened(self) -> ServerClient:
        if self._client is None:
            raise UsageError("the client is not open: use 'async with TrainingClient(…) as client'.")
        return self._client

    def _prepared(self, rows: Iterable[JsonObject], sampling: Mapping[str, object], repeats: int) -> Iterator[_Task]:
        agents, grouped = self.agents, self._opened().address_book.grouped
        for number, given in enumerate(rows):
            row = Row(given)
            name = row.agent or (agents[0] if len(agents) == 1 and AGENT_REF_KEY not in given else None)
            if name not in agents:
                problem = f"agent '{name}' is not part of this run" if name else "agent_ref does not name an agent"
                raise InvalidTask(f"rows[{number}]: {problem}.{did_you_mean_or_all(str(name), agents, 'agents')}")
            if name in grouped and not LEAST_GROUP <= repeats <= self._in_flight:
                raise UsageError(
                    f"repeats={repeats}: '{grouped[name]}' verifies all rollouts of a task together, so repeats must "
                    f"be from {LEAST_GROUP} to in_flight={self._in_flight}."
                )
            fields = {AGENT_REF_KEY: {"type": "responses_api_agents", "name": name}, **given}
            fields["responses_create_params"] = {**(row.params or {}), **sampling}
            # The rollout's id is made from these numbers, because repeats must not share one.
            fields.pop(ROLLOUT_ID_KEY, None)
            fields[TASK_INDEX_KEY] = self._tasks
            self._tasks += 1
            yield _Task(given, Row(fields).without_outcome())


class _Task(NamedTuple):
    given: JsonObject
    """The row as the trainer passed it."""
    row: Row
    """The row as it is sent."""


class _Open:
    """A group whose rollouts have not all ended."""

    def __init__(self, row: JsonObject, repeats: int) -> None:
        self.row = row
        self.rollouts: list[Rollout | None] = [None] * repeats
        self.left = repeats


class _Batch:
    """The rollouts of one call of `TrainingClient.rollouts`."""

    def __init__(
        self,
        runner: PolicyRunner,
        limits: AttemptLimits,
        watch: RunWatch,
        in_flight: int,
        failed_rollouts: FailedRollouts,
    ) -> None:
        self._runner = runner
        self._limits = limits
        self._watch = watch
        self._failed_rollouts = failed_rollouts
        # A rollout has a place until it has ended.
        self._places = asyncio.Semaphore(in_flight)
        self._in_flight = in_flight
        self._not_taken = 0
        """The number of finished rollouts whose group the trainer has not taken."""
        self._was_taken = asyncio.Event()
        self._ended: asyncio.Queue[Group | None] = asyncio.Queue()

    async def next_group(self) -> Group | None:
        """Return the next complete group, None after the last one or a failure."""
        group = await self._ended.get()
        if group is not None:
            self._not_taken -= len(group.rollouts)
            self._was_taken.set()
        return group

    async def run(self, tasks: Iterator[_Task], repeats: int) -> None:
        """Run all rollouts. Raise the first error that ends the batch."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch.watch())
                async with asyncio.TaskGroup() as members:
                    for given, row in tasks:
                        opened = _Open(given, repeats)
                        groups = self._runner.groups
                        if groups is not None and groups.are_of(row.agent):
                            groups.expect(row.fields[TASK_INDEX_KEY], range(repeats))
                        for repeat in range(repeats):
                            # The other members of a group already wait for this one.
                            await self._place(waits_for_trainer=groups is None or repeat == 0)
                            members.create_task(self._member(opened, row.of_repeat(repeat), repeat))
                watching.cancel()
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        finally:
            self._ended.put_nowait(None)

    async def _place(self, *, waits_for_trainer: bool) -> None:
        """Wait until another rollout may begin."""
        await self._places.acquire()
        while waits_for_trainer and self._not_taken >= self._in_flight:
            self._was_taken.clear()
            await self._was_taken.wait()

    async def _member(self, group: _Open, row: Row, repeat: int) -> None:
        try:
            record = await run_to_its_end(
                self._runner, row, self._limits, on_repeat=lambda record: None, on_lost=self._watch.confirm
            )
        finally:
            self._places.release()
        failure = failure_of_row(record.row)
        if failure is None and record.reward is None:
            failure = RolloutCancelled("the server asked not to keep this rollout")
        if failure is not None:
            failure.row = row.without_policy().fields
            if self._failed_rollouts == "raise":
                raise failure
        group.rollouts[repeat] = Rollout(record.row.fields, None if failure else record.reward, failure)
        group.left -= 1
        if not group.left:
            self._complete(group)

    def _complete(self, opened: _Open) -> None:
        rollouts = [each for each in opened.rollouts if each is not None]
        failed = sum(each.failure is not None for each in rollouts)
        if self._failed_rollouts == "drop":
            rollouts = [each for each in rollouts if each.failure is None]
        self._not_taken += len(rollouts)
        self._ended.put_nowait(Group(opened.row, tuple(rollouts), failed))


class SyncTrainingClient:
    """`TrainingClient` for trainers without an event loop. Rollouts go on in a thread while the trainer trains."""

    def __init__(self, head: str = "http://127.0.0.1:11000", **settings: Any) -> None:
        """See `TrainingClient`."""
        self._client = TrainingClient(head, **settings)
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._loop.result_of(self._client.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.result_of(self._client.__aexit__())
        finally:
            self._loop.stop()

    def rollouts(
        self, rows: Iterable[JsonObject], repeats: int = 1, sampling: Mapping[str, object] | None = None
    ) -> Iterator[Group]:
        """Yield groups; see `TrainingClient.rollouts`."""
        groups = self._client.rollouts(rows, repeats, sampling)
        try:
            while (group := self._loop.result_of(_next_of(groups))) is not None:
                yield group
        finally:
            self._loop.result_of(groups.aclose())

    @property
    def policy_version(self) -> int:
        """The version of the newest policy; see `TrainingClient.policy_version`."""
        return self._client.policy_version

    def staleness(self, rollout: Rollout) -> int:
        """See `TrainingClient.staleness`."""
        return self._client.staleness(rollout)

    def set_policy(
        self,
        urls: str | Sequence[str] | None = None,
        model: str | None = None,
        *,
        api_key: str | None = None,
        version: int | None = None,
    ) -> None:
        """Begin a new version of the policy; see `TrainingClient.set_policy`."""

        async def within_loop() -> None:
            self._client.set_policy(urls, model, api_key=api_key, version=version)

        self._loop.result_of(within_loop())


async def _next_of(groups: AsyncGenerator[Group, None]) -> Group | None:
    return await anext(groups, None)

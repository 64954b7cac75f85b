"""Run the rollouts of one batch for a trainer, and pause while too many finished rollouts wait for the trainer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from nemo_gym.calls.problems import failure_of_row
from nemo_gym.errors import RolloutCancelled
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.collector import first_of
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.outcome import Record
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import AttemptLimits, run_to_its_end
from nemo_gym.schemas.row import Row
from nemo_gym.training.group import Group, Rollout
from nemo_gym.training.policies import PolicyRunner, awaited
from nemo_gym.training.record import TrainingRecord

FailedRollouts = Literal["mask", "drop", "raise"]
"""`mask` keeps failed rollouts in their group, without a reward. `drop` leaves them out. `raise` ends the batch."""


class Task(NamedTuple):
    """A task of a batch in two forms: as the trainer passed it, and as it is sent to its agent."""

    given: JsonObject
    """The row as the trainer passed it."""
    row: Row
    """The row as it is sent to its agent."""


class _Open:
    """A group whose rollouts have not all ended."""

    def __init__(self, row: JsonObject, repeats: int) -> None:
        self.row = row
        self.rollouts: list[Rollout | None] = [None] * repeats
        self.left = repeats
        self.running: set[asyncio.Task[Record]] = set()
        self.why_cancelled: str | None = None
        self.deadline: asyncio.TimerHandle | None = None

    def cancel(self, why: str) -> None:
        """Cancel the rollouts that have not ended. They count as failed."""
        self.why_cancelled = why
        for each in self.running:
            each.cancel()


class Batch:
    """The rollouts of one call of `TrainingClient.rollouts`."""

    def __init__(
        self,
        runner: PolicyRunner,
        groups: GroupedTasks,
        limits: AttemptLimits,
        watch: RunWatch,
        *,
        in_flight: int,
        failed_rollouts: FailedRollouts,
        record: TrainingRecord | None = None,
        group_timeout_s: float | None = None,
        may_begin: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`may_begin` returns how many groups may begin by now. It is asked again when the trainer takes a group.
        The rest of a group is cancelled `group_timeout_s` after its first rollout has begun.
        """
        self._runner = runner
        self._groups = groups
        self._limits = limits
        self._watch = watch
        self._failed_rollouts = failed_rollouts
        self._record = record
        self._group_timeout_s = group_timeout_s
        self._may_begin = may_begin
        self._begun = 0
        self.open: set[_Open] = set()
        """The groups whose rollouts have not all ended."""
        # Limit the rollouts that run at once: each holds a slot until it has ended.
        self._places = asyncio.Semaphore(in_flight)
        self._in_flight = in_flight
        self._not_taken = 0
        """The number of rollouts in complete groups that the trainer has not taken yet."""
        self._was_taken = asyncio.Event()
        self._ended: asyncio.Queue[Group | None] = asyncio.Queue()

    async def next_group(self) -> Group | None:
        """Wait for the next complete group and return it. Return None after the last group, or if the batch failed."""
        group = await self._ended.get()
        if group is not None:
            self._not_taken -= len(group.rollouts)
            self._was_taken.set()
        return group

    def left(self) -> Iterator[Group]:
        """Yield the complete groups that were not taken."""
        while not self._ended.empty():
            if (group := self._ended.get_nowait()) is not None:
                yield group

    def cancel(self, row: JsonObject) -> int:
        """Cancel the open groups of a row as the trainer passed it. Return the number of cancelled rollouts."""
        groups = [each for each in self.open if each.row == row]
        for group in groups:
            group.cancel("the trainer has cancelled its group")
        return sum(group.left for group in groups)

    async def run(self, tasks: Iterator[Task], repeats: int) -> None:
        """Run all rollouts. Raise the first error that ends the batch."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch.watch())
                async with asyncio.TaskGroup() as members:
                    # Take a row only when its rollouts begin, because a row that is taken counts as used.
                    while await self._next_may_begin() and (task := next(tasks, None)) is not None:
                        opened = _Open(task.given, repeats)
                        self.open.add(opened)
                        self._begun += 1
                        self._groups.expect(task.row, range(repeats))
                        if self._record is not None:
                            self._record.plan(task.row, range(repeats))
                        for repeat in range(repeats):
                            await self._place()
                            members.create_task(self._member(opened, task.row.of_repeat(repeat)))
                            self._limit(opened)
                watching.cancel()
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        finally:
            self._ended.put_nowait(None)

    async def _next_may_begin(self) -> bool:
        """Wait until another group may begin, and return True."""
        while self._begun >= self._may_begin():
            self._was_taken.clear()
            await self._was_taken.wait()
        return True

    async def _place(self) -> None:
        """Wait for a free slot, and until the trainer has taken enough finished rollouts."""
        await self._places.acquire()
        while self._not_taken >= self._in_flight:
            self._was_taken.clear()
            await self._was_taken.wait()

    def _limit(self, group: _Open) -> None:
        """Set the deadline of a group when its first rollout begins."""
        if (limit_s := self._group_timeout_s) is not None and group.deadline is None and group.left:
            why = f"its group was not complete {limit_s:g} s after its first rollout began (group_timeout_s)"
            group.deadline = asyncio.get_running_loop().call_later(limit_s, group.cancel, why)

    async def _member(self, group: _Open, row: Row) -> None:
        try:
            record = await self._record_of(group, row)
        finally:
            self._places.release()
        async for ended, final in self._groups.end(row, record):
            self._end(group, ended, final)

    async def _record_of(self, group: _Open, row: Row) -> Record:
        """Run the attempts of a rollout, unless its group is cancelled."""
        if group.why_cancelled is None:
            attempts = asyncio.create_task(
                run_to_its_end(self._runner, row, self._limits, on_repeat=self._repeat, on_lost=self._watch.confirm)
            )
            group.running.add(attempts)
            try:
                if (record := await awaited(attempts)) is not None:
                    return record
            finally:
                group.running.discard(attempts)
        assert group.why_cancelled is not None, "only its group cancels these attempts"
        return self._runner.cancelled(row, group.why_cancelled)

    def _repeat(self, record: Record) -> None:
        if self._record is not None:
            self._record.repeat(record)

    def _end(self, group: _Open, row: Row, record: Record) -> None:
        if self._record is not None:
            self._record.end(record)
        failure = failure_of_row(record.row)
        if failure is None and record.reward is None:
            failure = RolloutCancelled("the server asked not to keep this rollout")
        if failure is not None:
            failure.row = row.without_policy().fields
            if self._failed_rollouts == "raise":
                raise failure
        group.rollouts[row.key.repeat] = Rollout(record.row.fields, None if failure else record.reward, failure)
        group.left -= 1
        if not group.left:
            self._complete(group)

    def _complete(self, opened: _Open) -> None:
        self.open.discard(opened)
        if opened.deadline is not None:
            opened.deadline.cancel()
        rollouts = [each for each in opened.rollouts if each is not None]
        failed = sum(each.failure is not None for each in rollouts)
        if self._failed_rollouts == "drop":
            rollouts = [each for each in rollouts if each.failure is None]
        self._not_taken += len(rollouts)
        self._ended.put_nowait(Group(opened.row, tuple(rollouts), failed))

"""Decide which rollouts of a run start, in which order, and when no more may start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path

from nemo_gym.rollouts.budget import Budget
from nemo_gym.rollouts.group_order import TaskOrder
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.opening import OpenRun
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.rollouts.precision import Precision
from nemo_gym.rollouts.recording import OnRecord
from nemo_gym.schemas.row import Row, offsets_by, rows_at, rows_in


class Dispatch:
    """The pending rollouts of a run, in the configured order, until the run's budget or time is used up.

    With `until_halfwidth`, no further rollout of an agent starts once its mean reward is known precisely enough.
    """

    def __init__(self, run: OpenRun, groups: GroupedTasks) -> None:
        self._run = run
        self._settings = run.settings
        self._order = TaskOrder(run.files, run.earlier, groups) if run.has_groups else None
        self._budget = Budget(run.settings, run.summary, run.prices, self.continues_a_group)
        wanted = run.settings.until_halfwidth
        self._precision = None if wanted is None else Precision(wanted, run.files.results)
        self._is_over = False

    def rows(self) -> Iterator[Row]:
        """Yield the rollouts that still have to run."""
        tasks = self._run.files.materialized
        if self._order is not None:
            return self._budget.in_time(self._order.rows())
        if self._precision is not None:
            return self._budget.in_time(self._precision.within(self._run.earlier.owed(shuffled_by_repeat(tasks))))
        ordered = by_repeat(tasks) if self._settings.interleave_repeats else rows_in(tasks)
        return self._budget.in_time(self._run.earlier.owed(ordered))

    def watching(self, on_record: OnRecord) -> OnRecord:
        """Return `on_record`, extended so that each ended rollout counts towards the precision and the budget."""
        precision, budget = self._precision, self._budget
        if precision is None and not budget.admits:
            return on_record

        def take(record: Record, summary: Summary) -> None:
            if precision is not None:
                precision.end(record)
            budget.end()
            on_record(record, summary)

        return take

    @property
    def admit(self) -> Callable[[], Awaitable[bool]] | None:
        """A function to await before each rollout. It returns whether the rollout may start. None if all may start."""
        return self._budget.admit if self._budget.admits else None

    def continues_a_group(self) -> bool:
        """Return whether the group of the next rollout has begun. If so, this rollout must start, too."""
        return self._order is not None and self._order.continues_a_group()

    def begin(self) -> None:
        """Count a rollout that starts. Call this right after `admit`, once the rollout's row is known."""
        self._budget.begin()

    def no_more_rows(self) -> None:
        """Record that all rollouts have started, so that no worker waits for the budget any longer."""
        self._budget.no_more_rows()

    def more_rows(self) -> None:
        """Allow rollouts to start again after `no_more_rows`, because some were requeued."""
        self._budget.more_rows()

    async def ending(self, work: Coroutine[object, None, None]) -> None:
        """Await the work, and cancel it after `max_seconds`."""
        try:
            async with asyncio.timeout(self._settings.max_seconds) as limit:
                await work
        except TimeoutError:
            if not limit.expired():
                raise
            self._is_over = True

    def ended_by(self) -> str | None:
        """Return the limit that ended the run or kept rollouts from starting, or None if no limit was reached."""
        if self._is_over:
            return f"max_seconds: {self._settings.max_seconds:g} s have passed"
        reached = None if self._precision is None else self._precision.reached()
        return self._budget.ended_by or reached


def by_repeat(path: Path) -> Iterator[Row]:
    """Yield the first repeats of all tasks, then the second ones, and so on, with one row in memory at a time."""
    repeat, last = 0, 0
    while repeat <= last:
        for row in rows_in(path):
            last = max(last, row.key.repeat)
            if row.key.repeat == repeat:
                yield row
        repeat += 1


def shuffled_by_repeat(path: Path) -> Iterator[Row]:
    """Yield the rows like `by_repeat`, but with the tasks of each repeat in a random order. The random seed is fixed.

    Any prefix of this order is a random sample of the tasks. A prefix of a file that is sorted by subject is not.
    """
    offsets = offsets_by(path, lambda key: key.repeat)
    chance = random.Random(0)
    for repeat in sorted(offsets):
        chance.shuffle(offsets[repeat])
        yield from rows_at(path, offsets[repeat])

"""Run a task, write its records as they are ready, and count them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nemo_gym.errors import RolloutCancelled
from nemo_gym.jsonl import Appender
from nemo_gym.rollouts.attempts import AttemptLimits, run_to_its_end
from nemo_gym.rollouts.control.control import CANCELLED, Control
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import Runner, failed
from nemo_gym.schemas.row import Row, TaskKey

OnRecord = Callable[[Record, Summary], None]


@dataclass(frozen=True)
class Recorder:
    """A recorder that runs single tasks, writes their records and counts their outcomes in the run's summary."""

    runner: Runner
    limits: AttemptLimits
    watch: RunWatch
    results: Appender
    failures: Appender
    summary: Summary
    on_record: OnRecord
    """Called for each ended task after its record is written."""
    groups: GroupedTasks
    ungraded: Appender | None = None
    """The file of the rollouts that wait for the others of their group; None if they are stored elsewhere."""
    control: Control | None = None
    """The control that can cancel single rollouts; None if no rollout can be cancelled."""
    _failed_before: dict[TaskKey, str | None] = field(default_factory=dict)
    """The ungraded rollouts, each with the cause of its last failed attempt."""

    async def run(self, row: Row, *, failed_before: str | None = None) -> str | None:
        """Run one task. Return the cause of its failure or of its last failed attempt, or None if no attempt failed.

        `failed_before` is the cause of the task's last failed attempt in an earlier run.
        """

        def repeat(record: Record) -> None:
            nonlocal failed_before
            self.failures.write(record.row.fields)
            self.summary.repeat(record, failed_before=failed_before)
            failed_before = record.cause

        self.summary.begin()
        stored = self.groups.stored(row)
        record = stored or await self._record_of(row, repeat)
        self._failed_before[row.key] = failed_before
        if record.is_ungraded and stored is None and self.ungraded is not None:
            self.ungraded.write(record.row.fields)
        async for ended, final in self.groups.end(row, record):
            self._end(ended, final)
        return record.cause or failed_before

    def _end(self, row: Row, record: Record) -> None:
        """Write the final record of a task, and count it."""
        if record.outcome is not Outcome.UNRESOLVED:
            (self.results if record.outcome is Outcome.SCORED else self.failures).write(record.row.fields)
        failed_before = self._failed_before.pop(row.key)
        self.summary.count(record, failed_before=failed_before)
        if self.control is not None:
            self.control.end(record, record.cause or failed_before)
        self.on_record(record, self.summary)

    async def _record_of(self, row: Row, on_repeat: Callable[[Record], None]) -> Record:
        if self.control is None:
            return await run_to_its_end(self.runner, row, self.limits, on_repeat=on_repeat, on_lost=self.watch.confirm)
        key = row.key
        if self.control.is_cancelled(key):
            return failed(row, RolloutCancelled(CANCELLED))
        running = self.control.running(row, key)

        def repeat(record: Record) -> None:
            on_repeat(record)
            running.attempt = record.row.attempt + 1

        try:
            with running:
                return await run_to_its_end(
                    self.runner, row, self.limits, on_repeat=repeat, on_lost=self.watch.confirm
                )
        except RolloutCancelled as error:
            return failed(row.of_attempt(running.attempt) if running.attempt != row.attempt else row, error)

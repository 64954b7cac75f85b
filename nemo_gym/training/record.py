"""Write a trainer's rollouts to the files of a run, for `ng view`, `ng eval show` and `ng eval events`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import DataError
from nemo_gym.jsonl import Appender, JsonObject
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import Note, Run, read
from nemo_gym.rollouts.ledger_check import agree
from nemo_gym.rollouts.ledger_writer import LedgerWriter, write_ended
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.opening import check_companions
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.rollouts.run_record import Fingerprint, RecordKeeper, RunRecord, read_record, session_of
from nemo_gym.schemas.row import Row, TaskKey

SYNC_S = 1.0
INPUT = Fingerprint(path="rows of the trainer", sha256="", bytes=0)


@dataclass(eq=False)
class TrainingRecord:
    """The files of a run whose tasks and rollouts a trainer adds while it trains."""

    planned: Appender
    results: Appender
    failures: Appender
    ledger: LedgerWriter
    keeper: RecordKeeper
    summary: Summary
    next_task: int
    """The number of the first task. It follows those of earlier sessions."""
    _failed: dict[TaskKey, str | None] = field(default_factory=dict)
    """The cause of the last failed attempt of each running rollout that has failed."""
    _synced_at: float = field(default_factory=time.monotonic)

    @classmethod
    @contextmanager
    def opened(cls, output: Path, subject: RunSubject) -> Iterator[Self]:
        """Open the files of a run until the block ends, and continue the run if they exist.

        Raise `DataError` if another process writes to them, or if they are not those of an earlier training.
        """
        files = RunFiles(results=output)
        with locked(files):
            earlier = read_record(files.record)
            if not files.ledger.exists():
                if files.results.exists() and files.results.stat().st_size:
                    raise DataError(f"{output} contains rollouts without a ledger. Choose another file for record.")
                check_companions(files)
            elif earlier is not None and earlier.input != INPUT:
                raise DataError(f"{output} is the output of ng eval run. Choose another file for record.")
            agree(files)
            run = read(output)
            summary = _summary_of(run)
            record = RunRecord.begin(files.record, subject, {}, input_file=INPUT, prompt=None, earlier=earlier)
            ledger = LedgerWriter(files)
            ledger.add(session_of(str(record.run_id), {}, subject))
            next_task = 1 + max((key.task for key in run.tasks), default=-1)
            with (
                RecordKeeper(files.record, record, summary, ledger, SecretValues()) as keeper,
                Appender(files.materialized) as planned,
                Appender(files.results) as results,
                Appender(files.failures) as failures,
            ):
                yield cls(planned, results, failures, ledger, keeper, summary, next_task)

    def plan(self, row: Row, repeats: Iterable[int]) -> None:
        """Add a task whose rollouts are about to start."""
        for repeat in repeats:
            planned = row.without_policy().of_repeat(repeat)
            self.ledger.task(planned.key, self.planned.write(planned.fields))
            self.summary.planned += 1
        self.summary.begin()

    def repeat(self, record: Record) -> None:
        """Add a failed attempt that is followed by another one."""
        write_ended(record, self.results, self.failures, self.ledger)
        key = record.row.key
        self.summary.repeat(record, failed_before=self._failed.get(key))
        self._failed[key] = record.cause

    def end(self, record: Record) -> None:
        """Add an ended rollout."""
        write_ended(record, self.results, self.failures, self.ledger)
        self.summary.count(record, failed_before=self._failed.pop(record.row.key, None))
        self._sync()

    def note(self, fields: JsonObject) -> None:
        """Add facts about the training, such as the policy's version, at the current time."""
        self.ledger.add(Note(time.time(), fields))

    def _sync(self) -> None:
        if time.monotonic() - self._synced_at > SYNC_S:
            for file in (self.planned, self.results, self.failures, self.ledger):
                file.sync()
            self._synced_at = time.monotonic()
        if self.keeper.is_due():
            self.keeper.write()


def _summary_of(run: Run) -> Summary:
    rewards = [each.reward for each in run.scored.values() if each.reward is not None]
    return Summary(
        planned=run.planned, scored=len(run.scored), kept=len(run.scored), unresolved=run.unresolved,
        failed_by_cause=run.failed, reward_sum=sum(rewards), rewards=len(rewards), usage=run.usage,
    )  # fmt: skip

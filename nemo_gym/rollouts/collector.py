"""Run all tasks of a run with bounded concurrency and write each record when it is ready."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from operator import sub
from pathlib import Path

from nemo_gym.calls.client import ServerClient
from nemo_gym.errors import ModelFailed, Overloaded, RolloutCancelled
from nemo_gym.http.open_files import most_incoming_calls, open_files_limit, raise_open_files_limit
from nemo_gym.http.reply_cache import Counts, counts_of
from nemo_gym.jsonl import Appender, WriteFailed
from nemo_gym.rollouts.budget import Budget, Precision
from nemo_gym.rollouts.concurrency import AdaptiveLimit, FixedLimit
from nemo_gym.rollouts.control.control import CANCELLED, MOST_AT_ONCE, Control, Floor, Owed
from nemo_gym.rollouts.control.listening import listening
from nemo_gym.rollouts.groups import GroupedTasks, TaskOrder
from nemo_gym.rollouts.ledger_writer import LedgerWriter, write_ended
from nemo_gym.rollouts.opening import OpenRun
from nemo_gym.rollouts.outcome import Outcome, Record, Summary, shape_of
from nemo_gym.rollouts.recorded_tokens import RecordedTokens, kept_until_the_end
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import AttemptLimits, Runner, failed, run_to_its_end
from nemo_gym.schemas.row import Row, TaskKey, offsets_by, rows_at, rows_in

logger = logging.getLogger(__name__)

SYNC_EVERY_S = 1.0
OnRecord = Callable[[Record, Summary], None]
IDENTICAL_FAILURES = 20
LONGEST_REASON = 300


async def collect(
    client: ServerClient,
    run: OpenRun,
    *,
    on_record: OnRecord = lambda record, summary: None,
    on_stop: Callable[[], None] | None = None,
    on_control: Callable[[Control], None] = lambda control: None,
    watch: RunWatch | None = None,
) -> Summary:
    """Run every pending task of a run. `on_record` is called after the record of each ended rollout is written.

    `on_stop` ends the collection at once, for a user's request to stop it. `on_control` receives the object that
    carries out the requests, before the first rollout starts. `watch` ends the collection when the servers' run ends.
    By default, the client's run is watched.

    Memory use grows with the number of rollouts in flight, not with the data. Records are synced to disk within about
    a second.
    """
    summary, settings = run.summary, run.settings
    wanted = settings.num_samples_in_parallel
    most = allowed_connections(MOST_AT_ONCE if wanted == "auto" else wanted)
    watch = watch or RunWatch(client)
    limits = AttemptLimits.of(settings, run.earlier.limit)
    groups = GroupedTasks(client, run.plan.rules.grouped if run.has_groups else {}, limits, watch.confirm)
    dispatch = Dispatch(run, groups)
    control = Control(
        run,
        AdaptiveLimit(most) if wanted == "auto" else FixedLimit(most),
        allowed=allowed_connections,
        continues_a_group=dispatch.continues_a_group,
        head_server=f"{client.head_server_config.host}:{client.head_server_config.port}",
        on_stop=on_stop,
    )
    on_control(control)
    run.record.concurrency = control.limit
    cached_before = _calls_of_cache(client)
    try:
        hide = run.secrets.mask_bytes if run.secrets else None
        with (
            Appender(run.files.results, hide=hide) as results,
            Appender(run.files.failures, hide=hide) as failures,
            Appender(run.files.ungraded, hide=hide) if run.has_groups else nullcontext() as ungraded,
        ):
            tokens = RecordedTokens.of(client, run.record.run_id)
            if tokens is not None:
                await tokens.drop_left_by({run.record.run_id, *run.earlier_ids})
            runner = Runner(client, rollout_timeout_s=settings.rollout_timeout_s, tokens=tokens)
            async with asyncio.TaskGroup() as group, kept_until_the_end(tokens), listening(control, run.collection):
                early_stop = None if settings.no_early_stop else EarlyStop(control.drain)

                def take(record: Record, summary: Summary) -> None:
                    dispatch.end(record)
                    on_record(record, summary)
                    if early_stop is not None:
                        early_stop.count(record)

                recorder = Recorder(
                    runner, limits, watch, results, failures, run.ledger, summary, take, groups, ungraded, control
                )
                work = _Work(run, recorder, control, dispatch)
                keeping = group.create_task(work.keep())
                watching = group.create_task(watch.watch())
                await dispatch.ending(work.through(dispatch.rows()))
                keeping.cancel()
                watching.cancel()
            if tokens is not None:
                tokens.check()
        if summary.finished == summary.planned:
            run.files.ungraded.unlink(missing_ok=True)
    except BaseExceptionGroup as errors:
        # Only fatal errors, such as a full disk or the end of the servers' run, reach this point. If several workers
        # have failed, report the first error.
        raise _with_advice(first_of(errors), run) from None
    except WriteFailed as error:
        raise _with_advice(error, run) from error
    finally:
        summary.close()
        summary.ended_by = dispatch.ended_by() or summary.ended_by
        cached = _calls_of_cache(client)
        if cached is not None and cached_before is not None:
            summary.model_cache = Counts(*map(sub, cached, cached_before))
    return summary


@dataclass
class _Work:
    """The state that the workers of one run share."""

    run: OpenRun
    recorder: Recorder
    control: Control
    dispatch: Dispatch
    workers: int = 0

    async def through(self, tasks: Iterator[Row]) -> None:
        """Run all tasks. Return when the last worker has ended."""
        async with asyncio.TaskGroup() as group:
            self._widen(group, tasks)
            self.control.floor = Floor(
                is_open=lambda: self.workers > 0,
                widen=partial(self._widen, group, tasks),
                spawn=group.create_task,
                more_rows=self.dispatch.budget.more_rows,
                no_more_rows=self.dispatch.budget.no_more_rows,
            )

    def _widen(self, group: asyncio.TaskGroup, tasks: Iterator[Row]) -> None:
        """Start workers up to the current limit. All workers take their tasks from the same iterator."""
        summary = self.run.summary
        wanted = min(self.control.limit.limit, max(1, summary.planned - summary.finished))
        while self.workers < wanted:
            self.workers += 1
            group.create_task(self._worker(group, tasks))

    async def _worker(self, group: asyncio.TaskGroup, tasks: Iterator[Row]) -> None:
        # All workers share one iterator, so a task is created only when a slot is free.
        while await self._may_start():
            owed = self.control.next_again() or self._next(tasks)
            if owed is None:
                self.dispatch.budget.no_more_rows()
                break
            self.dispatch.budget.begin()
            began_at = time.monotonic()
            cause = await self.recorder.run(owed.row, failed_before=owed.failed_before)
            took_s = time.monotonic() - began_at
            if self.control.limit.ended(took_s, was_overloaded=cause == Overloaded.failure_class):
                self._widen(group, tasks)
        self.workers -= 1

    async def _may_start(self) -> bool:
        """Wait while the run is paused or its budget has no room for another rollout. Return whether one may start."""
        if not await self.control.may_start() or self.workers > self.control.limit.limit:
            return False
        # Wait before taking a row, because rollouts that end during the wait may make the row unnecessary.
        budget = self.dispatch.budget
        return not budget.admits or await budget.admit()

    def _next(self, tasks: Iterator[Row]) -> Owed | None:
        row = next(tasks, None)
        return None if row is None else Owed(row, self.run.earlier.cause_of(row))

    async def keep(self) -> None:
        """Periodically sync the written records to disk, and record the progress."""
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            self.control.sample()
            await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        self.recorder.results.sync()
        self.recorder.failures.sync()
        self.run.ledger.sync()
        if self.recorder.ungraded is not None:
            self.recorder.ungraded.sync()
        if self.run.record.is_due():
            self.run.record.write()


def _calls_of_cache(client: ServerClient) -> Counts | None:
    book = client.address_book
    folder = book.settings.model_cache
    return None if folder is None else counts_of(folder, book.run_id)


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _with_advice(error: BaseException, run: OpenRun) -> BaseException:
    if not isinstance(error, WriteFailed):
        return error
    return WriteFailed(f"{error} The {run.summary.scored} scored rollouts are saved in {run.files.results}.")


def allowed_connections(wanted: int) -> int:
    """Raise this process's limit on open files. Return how many rollouts may then run at once, at most `wanted`."""
    raise_open_files_limit()
    # Do not make more calls than an agent server accepts. Its limit on open files is usually the same as here.
    most = most_incoming_calls()
    if most < wanted:
        logger.warning(
            "%d rollouts run at once instead of %d, because open files are limited to %d; raise ulimit -n",
            most, wanted, open_files_limit(),
        )  # fmt: skip
    return min(wanted, most)


@dataclass(frozen=True)
class Recorder:
    """A recorder that runs single tasks, writes their records and counts their outcomes in the run's summary."""

    runner: Runner
    limits: AttemptLimits
    watch: RunWatch
    results: Appender
    failures: Appender
    ledger: LedgerWriter
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
            write_ended(record, self.results, self.failures, self.ledger)
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
        write_ended(record, self.results, self.failures, self.ledger)
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


class EarlyStop:
    """Counts identical failures of the model until a rollout is scored. Then the run is never stopped."""

    def __init__(self, stop: Callable[[str], object]) -> None:
        """Initialise the counts. `stop` is called at most once, with the reason."""
        self._stop = stop
        self._is_over = False
        self._failures = Counter[str]()

    def count(self, record: Record) -> None:
        """Count an ended rollout. A failure counts if neither a retry nor another row is likely to succeed."""
        if self._is_over:
            return
        self._is_over = record.outcome is Outcome.SCORED
        if record.cause != ModelFailed.failure_class or record.may_retry:
            return
        message = " ".join((record.row.failure_message or "").split())
        shape = shape_of(message)
        self._failures[shape] += 1
        if self._failures[shape] == IDENTICAL_FAILURES:
            self._is_over = True
            self._stop(
                f"early_stop: the first {IDENTICAL_FAILURES} model calls failed in the same way, and no rollout was "
                f"scored: {message[:LONGEST_REASON]}. Correct the endpoint, the key or the model name, or pass "
                "--no-early-stop"
            )


class Dispatch:
    """The pending rollouts of a run, in the configured order, until the run's budget or time is used up.

    With `until_halfwidth`, no further rollout of an agent starts once its mean reward is known precisely enough.
    """

    def __init__(self, run: OpenRun, groups: GroupedTasks) -> None:
        self._run = run
        self._settings = run.settings
        self._order = TaskOrder(run.files, run.earlier, groups) if run.has_groups else None
        self.budget = Budget(run.settings, run.summary, run.prices, self.continues_a_group)
        wanted = run.settings.until_halfwidth
        self._precision = None if wanted is None else Precision(wanted, run.files)
        self._is_over = False

    def rows(self) -> Iterator[Row]:
        """Yield the rollouts that still have to run."""
        if self._run.summary.finished == self._run.summary.planned:
            # Do not read the rows of a finished run, of which there may be millions.
            return iter(())
        tasks = self._run.files.materialized
        if self._order is not None:
            return self.budget.in_time(self._order.rows())
        precision, interleaves = self._precision, self._settings.interleave_repeats
        in_order = precision is None and not interleaves
        owed = self._run.earlier.owed(rows_in(tasks) if in_order else by_repeat(tasks, shuffles=precision is not None))
        return self.budget.in_time(owed if precision is None else precision.within(owed))

    def end(self, record: Record) -> None:
        """Count an ended rollout towards the precision and the budget."""
        if self._precision is not None:
            self._precision.end(record)
        self.budget.end()

    def continues_a_group(self) -> bool:
        """Return whether the group of the next rollout has begun. If so, this rollout must start, too."""
        return self._order is not None and self._order.continues_a_group()

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
        return self.budget.ended_by or reached


def by_repeat(path: Path, *, shuffles: bool) -> Iterator[Row]:
    """Yield the first repeats of all tasks, then the second ones, and so on, with one row in memory at a time.

    With `shuffles`, the tasks of each repeat are in a random order with a fixed seed. Any prefix of this order is a
    random sample of the tasks. A prefix of a file that is sorted by subject is not.
    """
    offsets = offsets_by(path, lambda key: key.repeat)
    chance = random.Random(0)
    for repeat in sorted(offsets):
        if shuffles:
            chance.shuffle(offsets[repeat])
        yield from rows_at(path, offsets[repeat])

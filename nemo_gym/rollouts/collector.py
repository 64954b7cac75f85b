"""Run all tasks of a run with bounded concurrency and write each record when it is ready."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from operator import sub

from nemo_gym.calls.client import ServerClient
from nemo_gym.errors import Overloaded
from nemo_gym.http.open_files import most_incoming_calls, open_files_limit, raise_open_files_limit
from nemo_gym.http.reply_cache import Counts, counts_of
from nemo_gym.jsonl import Appender, WriteFailed
from nemo_gym.rollouts.attempts import AttemptLimits
from nemo_gym.rollouts.concurrency import AdaptiveLimit, FixedLimit
from nemo_gym.rollouts.control.control import MOST_AT_ONCE, Control, Floor
from nemo_gym.rollouts.control.listening import listening
from nemo_gym.rollouts.dispatch import Dispatch
from nemo_gym.rollouts.early_stop import EarlyStop
from nemo_gym.rollouts.groups import GroupedTasks
from nemo_gym.rollouts.line_digests import LineDigests
from nemo_gym.rollouts.opening import OpenRun
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.recorded_tokens import RecordedTokens, kept_until_the_end
from nemo_gym.rollouts.recording import OnRecord, Recorder
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import Runner
from nemo_gym.schemas.row import Row

logger = logging.getLogger(__name__)

SYNC_EVERY_S = 1.0


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
    run.record.runs_with(control.limit)
    cached_before = _calls_of_cache(client)
    try:
        hide = run.secrets.mask_bytes if run.secrets else None
        with (
            LineDigests(run.files) as digests,
            Appender(run.files.results, hide=hide, announce=digests.add) as results,
            Appender(run.files.failures, hide=hide) as failures,
            Appender(run.files.ungraded, hide=hide) if run.has_groups else nullcontext() as ungraded,
        ):
            tokens = RecordedTokens.of(client, run.record.identity)
            if tokens is not None:
                await tokens.drop_left_by({run.record.identity, *run.earlier_ids})
            runner = Runner(client, rollout_timeout_s=settings.rollout_timeout_s, tokens=tokens)
            async with (
                asyncio.TaskGroup() as group,
                kept_until_the_end(tokens),
                listening(control, run.collection),
            ):
                stop_early = None if settings.no_early_stop else EarlyStop(control.drain)
                take = dispatch.watching(on_record if stop_early is None else stop_early.watching(on_record))
                recorder = Recorder(runner, limits, watch, results, failures, summary, take, groups, ungraded, control)
                work = _Work(run, recorder, control, digests=digests, dispatch=dispatch)
                keeping = group.create_task(work.keep())
                watching = group.create_task(watch.watch())
                await dispatch.ending(work.run(dispatch.rows()))
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
        control.finish()
        summary.close()
        summary.ended_by = dispatch.ended_by() or summary.ended_by
        cached = _calls_of_cache(client)
        if cached is not None and cached_before is not None:
            summary.model_cache = Counts(*map(sub, cached, cached_before))
    return summary


class _Work:
    """The state that the workers of one run share."""

    def __init__(
        self,
        run: OpenRun,
        recorder: Recorder,
        control: Control,
        *,
        digests: LineDigests,
        dispatch: Dispatch,
    ) -> None:
        self._run = run
        self._dispatch = dispatch
        self._admit = dispatch.admit
        self._recorder = recorder
        self._control = control
        self._digests = digests
        self._workers = 0

    async def run(self, tasks: Iterator[Row]) -> None:
        async with asyncio.TaskGroup() as workers:
            self._widen(workers, tasks)
            self._control.floor = Floor(
                is_open=lambda: self._workers > 0,
                widen=partial(self._widen, workers, tasks),
                spawn=workers.create_task,
                more_rows=self._dispatch.more_rows,
                no_more_rows=self._dispatch.no_more_rows,
            )

    def _widen(self, group: asyncio.TaskGroup, tasks: Iterator[Row]) -> None:
        """Start workers up to the current limit. All workers take their tasks from the same iterator."""
        summary = self._run.summary
        wanted = min(self._control.limit.limit, max(1, summary.planned - summary.finished))
        while self._workers < wanted:
            self._workers += 1
            group.create_task(self._through(group, tasks))

    async def _through(self, group: asyncio.TaskGroup, tasks: Iterator[Row]) -> None:
        # All workers share one iterator, so a task is created only when a slot is free.
        while await self._may_start():
            row, failed_before = self._control.next_again() or self._next(tasks)
            if row is None:
                self._dispatch.no_more_rows()
                break
            self._dispatch.begin()
            began_at = time.monotonic()
            cause = await self._recorder.run(row, failed_before=failed_before)
            took_s = time.monotonic() - began_at
            if self._control.limit.ended(took_s, was_overloaded=cause == Overloaded.failure_class):
                self._widen(group, tasks)
        self._workers -= 1

    async def _may_start(self) -> bool:
        """Wait while the run is paused or its budget has no room for another rollout. Return whether one may start."""
        if not await self._control.may_start() or self._workers > self._control.limit.limit:
            return False
        # Wait before taking a row, because rollouts that end during the wait may make the row unnecessary.
        return self._admit is None or await self._admit()

    def _next(self, tasks: Iterator[Row]) -> tuple[Row | None, str | None]:
        row = next(tasks, None)
        return row, None if row is None else self._run.earlier.cause_of(row)

    async def keep(self) -> None:
        """Periodically sync the written records to disk, and record the progress."""
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            self._control.sample()
            await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        self._digests.sync()
        self._recorder.results.sync()
        self._recorder.failures.sync()
        if self._recorder.ungraded is not None:
            self._recorder.ungraded.sync()
        if self._run.record.is_due():
            self._run.record.write()


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
    return WriteFailed(
        f"{error} The {run.summary.scored} scored rollouts are saved in {run.files.results}. Free some disk space, "
        "then resume with --resume."
    )


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

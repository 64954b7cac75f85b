"""Run all tasks of a run with bounded concurrency and write each record when it is ready."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from operator import sub

from nemo_gym.calls.client import ServerClient
from nemo_gym.errors import Overloaded
from nemo_gym.http.open_files import most_incoming_calls, open_files_limit, raise_open_files_limit
from nemo_gym.http.reply_cache import Counts, counts_of
from nemo_gym.jsonl import Appender, WriteFailed
from nemo_gym.rollouts.attempts import AttemptLimits
from nemo_gym.rollouts.concurrency import AdaptiveLimit
from nemo_gym.rollouts.dispatch import Dispatch
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

MOST_AT_ONCE = 16_384
"""The upper limit of `auto`."""
SYNC_EVERY_S = 1.0


async def collect(
    client: ServerClient, run: OpenRun, *, on_record: OnRecord = lambda record, summary: None
) -> Summary:
    """Run every pending task of a run. `on_record` is called for each ended task after its record is written.

    Memory use grows with the number of rollouts in flight, not with the data. Records are synced to disk within about
    a second.
    """
    summary, settings = run.summary, run.settings
    wanted = settings.num_samples_in_parallel
    most = allowed_connections(MOST_AT_ONCE if wanted == "auto" else wanted)
    limit = AdaptiveLimit(most) if wanted == "auto" else None
    run.record.runs_with(most if limit is None else limit)
    groups = GroupedTasks(client, run.plan.grouped) if run.has_groups else None
    dispatch = Dispatch(run, groups)
    cached_before = _calls_of_cache(client)
    try:
        hide = run.secrets.mask_bytes if run.secrets else None
        with (
            LineDigests(run.files) as digests,
            Appender(run.files.results, hide=hide, announce=digests.add) as results,
            Appender(run.files.failures, hide=hide) as failures,
        ):
            at_once = min(most, max(1, summary.planned - summary.finished))
            tokens = RecordedTokens.of(client)
            runner = Runner(client, rollout_timeout_s=settings.rollout_timeout_s, tokens=tokens, groups=groups)
            watch = RunWatch(client)
            async with asyncio.TaskGroup() as group, kept_until_the_end(tokens):
                limits = AttemptLimits.of(settings, run.earlier.limit)
                recorder = Recorder(runner, limits, watch, results, failures, summary, dispatch.watching(on_record))
                work = _Work(run, recorder, digests=digests, limit=limit, dispatch=dispatch)
                keeping = group.create_task(work.keep())
                watching = group.create_task(watch.watch())
                await dispatch.ending(work.run(dispatch.rows(), at_once))
                keeping.cancel()
                watching.cancel()
            if tokens is not None:
                tokens.check()
    except BaseExceptionGroup as errors:
        # Only fatal errors such as a full disk or the end of the run arrive here, possibly from several workers.
        raise _with_advice(first_of(errors), run) from None
    except WriteFailed as error:
        raise _with_advice(error, run) from error
    finally:
        summary.close()
        summary.ended_by = dispatch.ended_by()
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
        *,
        digests: LineDigests,
        limit: AdaptiveLimit | None,
        dispatch: Dispatch,
    ) -> None:
        self._run = run
        self._dispatch = dispatch
        self._admit = dispatch.admit
        self._recorder = recorder
        self._digests = digests
        self._limit = limit
        self._workers = 0

    async def run(self, tasks: Iterator[Row], most: int) -> None:
        """Run all tasks."""
        async with asyncio.TaskGroup() as workers:
            self.begin(workers, tasks, most)

    def begin(self, group: asyncio.TaskGroup, tasks: Iterator[Row], most: int) -> None:
        """Start workers up to the current limit. They all take their tasks from the iterator."""
        wanted = most if self._limit is None else min(most, self._limit.limit)
        while self._workers < wanted:
            self._workers += 1
            group.create_task(self._through(group, tasks, most))

    async def _through(self, group: asyncio.TaskGroup, tasks: Iterator[Row], most: int) -> None:
        # All workers share one iterator, so a task is created only when a slot is free.
        # Admitted before the row is taken, because the rollouts before it may show that it is not needed.
        while self._admit is None or await self._admit():
            row = next(tasks, None)
            if row is None:
                self._dispatch.no_more_rows()
                break
            began_at = time.monotonic()
            cause = await self._recorder.run(row, failed_before=self._run.earlier.cause_of(row))
            if self._limit is None:
                continue
            if self._limit.ended(time.monotonic() - began_at, was_overloaded=cause == Overloaded.failure_class):
                self.begin(group, tasks, most)
            if self._workers > self._limit.limit:
                break
        self._workers -= 1

    async def keep(self) -> None:
        """Sync the written records to disk periodically."""
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        self._digests.sync()
        self._recorder.results.sync()
        self._recorder.failures.sync()
        if self._run.record.is_due():
            self._run.record.write()


def _calls_of_cache(client: ServerClient) -> Counts | None:
    book = client.address_book
    return None if book.model_cache is None else counts_of(book.model_cache, book.run_id)


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of nested groups."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _with_advice(error: BaseException, run: OpenRun) -> BaseException:
    if not isinstance(error, WriteFailed):
        return error
    return WriteFailed(
        f"{error} The {run.summary.scored} scored rollouts are saved in {run.files.results}. Free some disk space, "
        "then resume with +resume_from_cache=true."
    )


def allowed_connections(wanted: int) -> int:
    """Return how many rollouts may run at once, after raising this process's limit on open files."""
    raise_open_files_limit()
    # The agent's server accepts as many, because it usually has the same limit.
    most = most_incoming_calls()
    if most < wanted:
        logger.warning(
            "%d rollouts run at once instead of %d, because open files are limited to %d; raise ulimit -n",
            most, wanted, open_files_limit(),
        )  # fmt: skip
    return min(wanted, most)

"""Run all tasks of a run, bounded in number, and write each record as it comes."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nemo_gym.errors import DataError
from nemo_gym.http.client import ServerClient
from nemo_gym.jsonl import Appender, read_raw_lines, read_rows, write_rows
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.rollouts.resume import EarlierRun
from nemo_gym.rollouts.runner import Runner
from nemo_gym.rollouts.tasks import TaskPlan

logger = logging.getLogger(__name__)

OnRecord = Callable[[Record, Summary], None]

OTHER_FILES = 256
"""How many files, logs and pipes this process may have open beside its rollouts' connections."""


def prepare_files(plan: TaskPlan, files: RunFiles) -> Summary:
    """Write every task of the run to its file, and count them.

    An output that is there already is refused, unless the settings say to resume or to overwrite.
    """
    settings = plan.settings
    files.results.parent.mkdir(parents=True, exist_ok=True)
    if settings.resume_from_cache and files.materialized.exists() and files.results.exists():
        return Summary(planned=sum(1 for _ in read_raw_lines(files.materialized)))
    leftovers = [path for path in (files.results, files.failures) if path.exists() and path.stat().st_size]
    for path in leftovers:
        _check_replaceable(path, plan, files)
    # The old results go before the new tasks come: whenever this is interrupted, the two never belong to two runs.
    staged = files.materialized.with_name(f".{files.materialized.name}.staged")
    try:
        planned = write_rows(staged, plan.rows())
        for path in (*leftovers, files.metrics):
            path.unlink(missing_ok=True)
        staged.replace(files.materialized)
    finally:
        staged.unlink(missing_ok=True)
    return Summary(planned=planned)


def _check_replaceable(path: Path, plan: TaskPlan, files: RunFiles) -> None:
    if plan.input.exists() and plan.input.samefile(path):
        raise DataError(f"{path}: is both the input and a file that this run would replace. Choose another output.")
    if plan.settings.overwrite:
        return
    if plan.settings.resume_from_cache:
        missing = files.results if files.materialized.exists() else files.materialized
        raise DataError(
            f"{path}: holds rollouts of an earlier run, but without {missing} it cannot be resumed. Put that file "
            "back, add +overwrite=true to begin again, or choose another output."
        )
    raise DataError(
        f"{path}: holds rollouts of an earlier run. Add +resume_from_cache=true to go on with it, "
        "+overwrite=true to replace it, or choose another output."
    )


async def collect(
    client: ServerClient,
    files: RunFiles,
    settings: CollectionSettings,
    summary: Summary,
    *,
    on_record: OnRecord = lambda record, summary: None,
) -> Summary:
    """Run every owed task of the run's materialized file; `summary` says how many are planned.

    Records leave memory as they are written: what is held grows with the number in flight, not with the data.
    """
    earlier = EarlierRun.read(files) if settings.resume_from_cache else EarlierRun()
    summary.scored = summary.kept = len(earlier.scored)
    summary.failed_by_cause.update(earlier.given_up.values())
    runner = Runner(client, rollout_timeout_s=settings.rollout_timeout_s)
    owed = earlier.owed(read_rows(files.materialized))
    with Appender(files.results) as results, Appender(files.failures) as failures:

        async def work(tasks: Iterator[dict[str, Any]]) -> None:
            # All workers draw from one iterator, so a task is made only when a slot is free.
            for row in tasks:
                record = await runner.run(row)
                if record.outcome is Outcome.SCORED:
                    results.write(record.row)
                elif record.outcome is Outcome.FAILED:
                    failures.write(record.row)
                summary.count(record)
                on_record(record, summary)

        parallel = allowed_connections(settings.num_samples_in_parallel)
        workers = min(parallel, max(1, summary.planned - summary.finished))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work(owed))
        except ExceptionGroup as errors:
            # Only what ends a run comes here, such as a full disk, and it may meet several workers at once.
            raise errors.exceptions[0] from None
        finally:
            summary.close()
    return summary


def allowed_connections(wanted: int) -> int:
    """How many connections this process may hold; its limit of open files is raised as far as it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        logger.warning("open files are limited to %d (ulimit -Hn), so fewer rollouts run at once", most)
    return max(1, min(wanted, most - OTHER_FILES))

"""Run all tasks of a run, bounded in number, and write each record as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from nemo_gym.errors import DataError
from nemo_gym.http.client import ServerClient
from nemo_gym.jsonl import Appender, read_rows, write_rows
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.rollouts.resume import EarlierRun
from nemo_gym.rollouts.runner import Runner
from nemo_gym.rollouts.tasks import TaskPlan

OnRecord = Callable[[Record, Summary], None]


def prepare_files(plan: TaskPlan, files: RunFiles) -> Summary:
    """Write every task of the run to its file, and count them.

    An output that is there already is refused, unless the settings say to resume or to overwrite.
    """
    settings = plan.settings
    files.results.parent.mkdir(parents=True, exist_ok=True)
    if settings.resume_from_cache and files.materialized.exists() and files.results.exists():
        return Summary(planned=sum(1 for _ in read_rows(files.materialized)))
    leftovers = [path for path in (files.results, files.failures) if path.exists() and path.stat().st_size]
    if leftovers and not settings.overwrite:
        raise DataError(
            f"{leftovers[0]}: holds the rollouts of an earlier run. Add +resume_from_cache=true to go on with it, "
            "+overwrite=true to replace it, or choose another output."
        )
    planned = write_rows(files.materialized, plan.rows())
    for path in leftovers:
        path.unlink()
    return Summary(planned=planned)


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

        workers = min(settings.num_samples_in_parallel, max(1, summary.planned - summary.finished))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work(owed))
        finally:
            summary.close()
    return summary

"""Grade stored rollouts again, with servers that are started for it or with running ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.running import live_runs
from nemo_gym.cli import printing, running
from nemo_gym.cli.failure_reporter import FailureReporter
from nemo_gym.cli.options import settings_from
from nemo_gym.cli.rollouts import INTERRUPTED, exit_code, report, run_interruptibly, while_up
from nemo_gym.cli.settings import StartSettings
from nemo_gym.config.masking import masked
from nemo_gym.config.models import RunConfig
from nemo_gym.config.secret_values import secrets_of
from nemo_gym.config.subject import RunSubject
from nemo_gym.config.without_model import graders_of
from nemo_gym.data.exporters import export
from nemo_gym.errors import DataError, LaunchError
from nemo_gym.launcher.local import RunningServers
from nemo_gym.rollouts.aggregate import aggregate_all
from nemo_gym.rollouts.job import RunFiles, failures_path_for
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.reverify import Begun, Graders, Reverification, ReverificationJob, Stored
from nemo_gym.rollouts.reverify import reverify as grade_again
from nemo_gym.schemas.rollout import AgentMetrics


class GradeAgain(Protocol):
    """What `with_graders` calls: a grading of the planned rollouts, whose result is the exit code."""

    def __call__(
        self,
        run: RunConfig,
        connect: Callable[[], ServerClient],
        planned: Reverification,
        servers: RunningServers | None,
        /,
    ) -> int: ...


def with_graders(run: RunConfig, work: GradeAgain) -> int:
    """Start the servers that grade, or find them if the run has no config, and return the exit code of `work`."""
    job = settings_from(ReverificationJob, run.plain)
    stored = Stored.read(job)
    if not run.config_paths:
        head = running.find_head(run, live_runs(), [agent for agent in stored.agents if agent])
        connect = partial(ServerClient.load_from_global_config, head, run.settings.run_token or None)
        return work(run, connect, Reverification.plan(stored, Graders.among(connect().shared_run.run)), None)
    planned = Reverification.plan(stored, Graders.among(run))
    settings = settings_from(StartSettings, run.plain)
    own = graders_of(run)
    with running.launch_for(own, settings, None, on_line=None) as servers:
        running.await_model_endpoints(servers, settings)
        return work(own, partial(ServerClient.of_run, servers.run), planned, servers)


def graded_once(
    run: RunConfig, connect: Callable[[], ServerClient], planned: Reverification, servers: RunningServers | None
) -> int:
    """Grade the rollouts, and export the results to experiment trackers."""
    files, code = write(run, connect(), planned, servers)
    if code != INTERRUPTED:
        export(run.plain, masked(run.raw), files.metrics, files.results, printing.note)
    return code


def _note_if_nothing_failed(planned: Reverification) -> None:
    if planned.job.judge_failed_only and not planned.stored.offsets:
        failures = failures_path_for(planned.job.rollouts_jsonl_fpath)
        printing.note(
            f"note: {failures} has no unscored rollout whose judge failed, so there is nothing to grade. To grade all "
            "rollouts again, leave out --judge-failed-only."
        )


class Written(NamedTuple):
    files: RunFiles
    exit_code: int


def write(run: RunConfig, client: ServerClient, planned: Reverification, servers: RunningServers | None) -> Written:
    """Grade the rollouts and write the results."""
    _note_if_nothing_failed(planned)
    secrets = secrets_of(run)
    reporter = FailureReporter(printing.note, mask=secrets.mask)
    subject = client.shared_run.subject if servers is None else RunSubject.of_run(run)
    begun: Begun | None = None
    progress: Progress

    def on_record(record: Record, summary: Summary) -> None:
        reporter.take(record)
        progress.advance(record, summary)
        if begun is not None and begun.record.is_due():
            begun.record.write()

    async def work() -> list[AgentMetrics] | None:
        nonlocal begun, progress
        try:
            files = await planned.output(client)
            with locked(files):
                begun = planned.begin(files, subject, secrets)
                with begun.record, Progress(begun.summary) as progress:
                    await while_up(servers, grade_again(client, planned, begun, on_record=on_record))
                return None if planned.job.disable_aggregation else await _metrics(client, planned, files)
        finally:
            await client.aclose()

    try:
        metrics = run_interruptibly(work())
    except KeyboardInterrupt:
        if begun is None:
            raise
        printing.note(f"interrupted. Resume {begun.files.results} with --resume")
        return Written(begun.files, INTERRUPTED)
    assert begun is not None
    report(begun.files, begun.summary, metrics, reporter, shows_usage=False)
    code = exit_code(begun.files, begun.summary, planned.job.max_failed_share)
    return Written(begun.files, code if metrics is not None or planned.job.disable_aggregation else 1)


async def _metrics(client: ServerClient, planned: Reverification, files: RunFiles) -> list[AgentMetrics] | None:
    def grader(agent: str) -> str:
        return str(planned.graders.find(agent))

    try:
        return await aggregate_all(client, [files.results], files.metrics, server_of=grader)
    except (DataError, LaunchError) as error:
        printing.note(f"Error: {error}")
        return None

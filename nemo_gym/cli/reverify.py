"""The command that grades stored rollouts again, with its own or with running servers."""

from __future__ import annotations

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.running import live_runs
from nemo_gym.cli import running
from nemo_gym.cli.failure_reporter import FailureReporter
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.rollouts import exit_code, report, run_interruptibly, while_up
from nemo_gym.cli.settings import StartSettings
from nemo_gym.config import RunConfig
from nemo_gym.config.masking import masked
from nemo_gym.config.secret_values import secrets_of
from nemo_gym.config.without_model import graders_of, load_for_grading
from nemo_gym.errors import DataError, LaunchError
from nemo_gym.export import export
from nemo_gym.jsonl import JsonObject
from nemo_gym.launcher import RunningServers
from nemo_gym.rollouts.aggregate import aggregate_all
from nemo_gym.rollouts.job import RunFiles, failures_path_for
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.reverify import Begun, Graders, Reverification, ReverificationJob, Stored
from nemo_gym.rollouts.reverify import reverify as grade_again
from nemo_gym.rollouts.subject import blocks_of_config, blocks_of_run


class ReverificationSettings(ReverificationJob, StartSettings):
    """The flags of the command."""


def reverify(words: list[str]) -> int:
    """Grade stored rollouts again."""
    summary = (
        "Grade stored rollouts again from their rows and responses. With a config, its servers are started, except "
        "agents and the policy; without one, the running servers are used."
    )
    line = Options("ng eval reverify", ReverificationSettings, summary, takes_model=True).read(words)
    running.interrupt_on_signals()
    run = load_for_grading(line.paths, line.overrides)
    job = settings_from(ReverificationJob, run.plain)
    stored = Stored.read(job)
    if not run.config_paths:
        client = running.client_for(run, live_runs(), [agent for agent in stored.agents if agent])
        graders = Graders.among(blocks_of_config(client.global_config_dict), client.address_book.aliases)
        return _graded(run, client, Reverification.plan(stored, graders), None)
    planned = Reverification.plan(stored, Graders.among(blocks_of_run(run), run.aliases))
    settings = settings_from(StartSettings, run.plain)
    own = graders_of(run)
    with running.launch_for(own, settings, None, on_line=None) as servers:
        running.await_model_endpoints(servers, settings)
        return _graded(own, ServerClient.of_run(servers.run), planned, servers)


def _note_if_nothing_failed(planned: Reverification) -> None:
    if planned.job.judge_failed_only and not planned.lines:
        failures = failures_path_for(planned.job.rollouts_jsonl_fpath)
        running.note(
            f"note: {failures} has no unscored rollout whose judge failed, so there is nothing to grade. To grade all "
            "rollouts again, leave out --judge-failed-only."
        )


def _graded(run: RunConfig, client: ServerClient, planned: Reverification, servers: RunningServers | None) -> int:
    _note_if_nothing_failed(planned)
    secrets = secrets_of(run)
    reporter = FailureReporter(running.note, mask=secrets.mask)
    begun: Begun | None = None
    progress: Progress

    def on_record(record: Record, summary: Summary) -> None:
        reporter.take(record)
        progress.advance(record, summary)

    async def work() -> list[JsonObject] | None:
        nonlocal begun, progress
        try:
            files = await planned.output(client)
            with locked(files):
                begun = planned.begin(files)
                with Progress(begun.summary) as progress:
                    hide = secrets.mask_bytes if secrets else None
                    await while_up(servers, grade_again(client, planned, begun, on_record=on_record, hide=hide))
                return None if planned.job.disable_aggregation else await _metrics(client, planned, files)
        finally:
            await client.aclose()

    try:
        metrics = run_interruptibly(work())
    except KeyboardInterrupt:
        if begun is None:
            raise
        running.note(f"interrupted. Resume {begun.files.results} with +resume_from_cache=true")
        return 130
    assert begun is not None
    report(begun.files, begun.summary, metrics, reporter)
    export(run.plain, masked(run.raw), begun.files.metrics, begun.files.results, running.note)
    return exit_code(begun.files, begun.summary, planned.job.max_failed_share)


async def _metrics(client: ServerClient, planned: Reverification, files: RunFiles) -> list[JsonObject] | None:
    def grader(agent: str) -> str:
        return str(planned.graders.find(agent))

    try:
        return await aggregate_all(client, [files.results], files.metrics, server_of=grader)
    except (DataError, LaunchError) as error:
        running.note(f"Error: {error}")
        return None

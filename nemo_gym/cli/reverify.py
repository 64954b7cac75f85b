"""The command that grades stored rollouts again, with servers that it starts or with running ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import Field

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.running import live_runs
from nemo_gym.cli import printing, running
from nemo_gym.cli.failure_reporter import FailureReporter
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.rollouts import INTERRUPTED, exit_code, report, run_interruptibly, while_up
from nemo_gym.cli.settings import CommandSettings, StartSettings
from nemo_gym.config import RunConfig
from nemo_gym.config.masking import masked
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.secret_values import secrets_of
from nemo_gym.config.without_model import graders_of, load_for_grading
from nemo_gym.data.exporters import export
from nemo_gym.errors import DataError, LaunchError, UsageError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.labelling.agreement_report import variance_json, variance_text
from nemo_gym.labelling.judge_variance import gradings_of, judge_variance, majority_agreement
from nemo_gym.labelling.labels import Labels, pairs_of, read_labels
from nemo_gym.launcher import RunningServers
from nemo_gym.rollouts.aggregate import aggregate_all
from nemo_gym.rollouts.job import RunFiles, failures_path_for
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.reverify import Begun, Graders, Reverification
from nemo_gym.rollouts.reverify import reverify as grade_again
from nemo_gym.rollouts.run_record import RecordKeeper
from nemo_gym.rollouts.stored_rollouts import ReverificationJob, Stored
from nemo_gym.rollouts.subject import RunSubject, blocks_of_config, blocks_of_run


class JudgeSettings(CommandSettings):
    """Parameters for measuring how consistent a judge is, and how well it agrees with people."""

    judge_repeats: int | None = Field(default=None, ge=2)
    """Grade each rollout this many times, into <output>_judge1.jsonl and so on, and report how much the
    judge's verdicts vary."""
    labels: Path | None = None
    """A file with human labels (ng eval label), for use with judge_repeats. The judge's most frequent verdict on each
    rollout is compared with the label."""


class ReverificationSettings(ReverificationJob, JudgeSettings, StartSettings):
    """All parameters of `ng eval reverify`."""


def reverify(words: list[str]) -> int:
    summary = (
        "Grade stored rollouts again from their rows and responses. With a config, its servers are started, except "
        "agents and the policy; without one, the running servers are used."
    )
    line = Options("ng eval reverify", ReverificationSettings, summary, takes_model=True).read(words)
    run = load_for_grading(line.paths, line.overrides)
    job = settings_from(ReverificationJob, run.plain)
    judge = settings_from(JudgeSettings, run.plain)
    labels = _check(job, judge, run)
    stored = Stored.read(job)
    if not run.config_paths:
        connect = partial(running.client_for, run, live_runs(), [agent for agent in stored.agents if agent])
        client = connect()
        graders = Graders.among(blocks_of_config(client.global_config_dict), client.address_book.aliases)
        planned = Reverification.plan(stored, graders)
        if judge.judge_repeats is None:
            return _graded(run, client, planned, None)
        _check_cache(client.address_book.settings)
        return _repeated(run, connect, planned, None, repeats=judge.judge_repeats, labels=labels)
    planned = Reverification.plan(stored, Graders.among(blocks_of_run(run), run.aliases))
    settings = settings_from(StartSettings, run.plain)
    own = graders_of(run)
    with running.launch_for(own, settings, None, on_line=None) as servers:
        running.await_model_endpoints(servers, settings)
        connect = partial(ServerClient.of_run, servers.run)
        if judge.judge_repeats is None:
            return _graded(own, connect(), planned, servers)
        return _repeated(own, connect, planned, servers, repeats=judge.judge_repeats, labels=labels)


def _check(job: ReverificationJob, judge: JudgeSettings, run: RunConfig) -> Labels | None:
    """Return the labels, or None if no file is given. Raise `UsageError` for settings that exclude each other."""
    if judge.judge_repeats is None:
        if judge.labels is not None:
            raise UsageError(
                "labels: only used with --judge-repeats. To compare labels with a single grading, use "
                "ng eval label --score."
            )
        return None
    for name in ("judge_failed_only", "append"):
        if getattr(job, name):
            raise UsageError(
                f"{name} cannot be used with judge_repeats, which grades all rollouts again. Leave out one of the two."
            )
    _check_cache(run.settings)
    labels = read_labels(judge.labels) if judge.labels else None
    if labels is not None:
        # Check the labels before the rollouts are graded many times, which may be expensive.
        pairs_of(job.rollouts_jsonl_fpath, labels)
    return labels


def _check_cache(settings: RunSettings) -> None:
    if settings.model_cache is not None:
        raise UsageError(
            "model_cache cannot be used with judge_repeats: cached verdicts do not vary. Remove one of the two."
        )


def _repeated(
    run: RunConfig,
    connect: Callable[[], ServerClient],
    planned: Reverification,
    servers: RunningServers | None,
    *,
    repeats: int,
    labels: Labels | None,
) -> int:
    """Grade all rollouts `repeats` times, and report how much the verdicts vary. Each repeat has its own file."""
    output = planned.job.output_jsonl_fpath
    files: list[Path] = []
    for repeat in range(1, repeats + 1):
        path = output.with_name(f"{output.stem}_judge{repeat}{output.suffix}")
        job = planned.job.model_copy(update={"output_jsonl_fpath": path, "disable_aggregation": True})
        printing.say(f"grading {repeat} of {repeats}:")
        written, code = _write(run, connect(), replace(planned, job=job), servers)
        if code:
            return code
        files.append(written.results)
    gradings = gradings_of(files)
    variance = judge_variance(gradings, repeats)
    people = majority_agreement(gradings, labels, planned.job.rollouts_jsonl_fpath) if labels else {}
    written_to = output.with_name(f"{output.stem}_judge_variance.json")
    written_to.write_bytes(dump_json(variance_json(variance, people)))
    printing.say(f"\n{variance_text(variance, people)}\nvariance: {written_to}")
    return 0


def _note_if_nothing_failed(planned: Reverification) -> None:
    if planned.job.judge_failed_only and not planned.lines:
        failures = failures_path_for(planned.job.rollouts_jsonl_fpath)
        printing.note(
            f"note: {failures} has no unscored rollout whose judge failed, so there is nothing to grade. To grade all "
            "rollouts again, leave out --judge-failed-only."
        )


def _graded(run: RunConfig, client: ServerClient, planned: Reverification, servers: RunningServers | None) -> int:
    files, code = _write(run, client, planned, servers)
    if code != INTERRUPTED:
        export(run.plain, masked(run.raw), files.metrics, files.results, printing.note)
    return code


def _write(
    run: RunConfig, client: ServerClient, planned: Reverification, servers: RunningServers | None
) -> tuple[RunFiles, int]:
    """Grade the rollouts and write the results. Return their files and the exit code."""
    _note_if_nothing_failed(planned)
    secrets = secrets_of(run)
    reporter = FailureReporter(printing.note, mask=secrets.mask)
    subject = RunSubject.of_config(client.global_config_dict) if servers is None else RunSubject.of_run(run)
    begun: Begun | None = None
    keeper: RecordKeeper | None = None
    progress: Progress

    def on_record(record: Record, summary: Summary) -> None:
        reporter.take(record)
        progress.advance(record, summary)
        if keeper is not None and keeper.is_due():
            keeper.write()

    async def work() -> list[JsonObject] | None:
        nonlocal begun, progress, keeper
        try:
            files = await planned.output(client)
            with locked(files):
                begun = planned.begin(files)
                keeper = planned.record(begun, subject, secrets)
                with keeper.until_the_end() if keeper else nullcontext(), Progress(begun.summary) as progress:
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
        printing.note(f"interrupted. Resume {begun.files.results} with --resume")
        return begun.files, INTERRUPTED
    assert begun is not None
    report(begun.files, begun.summary, metrics, reporter, shows_usage=False)
    code = exit_code(begun.files, begun.summary, planned.job.max_failed_share)
    return begun.files, code if metrics is not None or planned.job.disable_aggregation else 1


async def _metrics(client: ServerClient, planned: Reverification, files: RunFiles) -> list[JsonObject] | None:
    def grader(agent: str) -> str:
        return str(planned.graders.find(agent))

    try:
        return await aggregate_all(client, [files.results], files.metrics, server_of=grader)
    except (DataError, LaunchError) as error:
        printing.note(f"Error: {error}")
        return None

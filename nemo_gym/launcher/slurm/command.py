"""Commands that submit a collection to Slurm, follow the job and cancel it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pydantic import Field, PositiveInt

from nemo_gym.cli import printing, running
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.rollouts import COLLECT_WITH_SERVERS, EndToEndSettings
from nemo_gym.cli.settings import CommandSettings, JsonSettings, StartSettings
from nemo_gym.data.prepare import unobtainable_files
from nemo_gym.errors import DataError, LaunchError, UsageError
from nemo_gym.jsonl import JsonObject
from nemo_gym.launcher.slurm import scheduler
from nemo_gym.launcher.slurm.job import SlurmJob
from nemo_gym.launcher.slurm.plan import plan_of
from nemo_gym.launcher.slurm.scheduler import JobState
from nemo_gym.launcher.slurm.script import script_of
from nemo_gym.launcher.slurm.submission import Submission, find, read_submission, write_folder, write_submission
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.run_record import read_record
from nemo_gym.text import counted

POLL_S = 1.0
END_S = 60.0
"""Seconds that a job may take to end after a drain or a cancel: for metrics, records and Slurm's clean-up."""
TIMED_OUT = 124

SUMMARY = """Submit a collection to Slurm: ng submit --config FILE --output results/x.jsonl --nodes 2 --time 4:00:00.

It takes the settings of `ng eval run`. The job starts the servers on its nodes, collects, and stops them. Before its
time limit it drains and requeues itself, until no rollout is unresolved. Manage it with
`ng submit status|logs|cancel RUN`."""


class SubmitSettings(SlurmJob, EndToEndSettings):
    """Parameters of `ng submit`."""

    slurm: bool = True
    """Submit to Slurm, the only scheduler so far."""
    resolve_only: bool = False
    """Print the script and the commands without submitting."""
    dry_run: bool = False
    """The same as --resolve-only."""
    as_json: bool = Field(default=False, alias="json")
    """Print JSON."""


class SubmittedSettings(CommandSettings):
    """Parameters of the commands for a submitted run."""

    run: str
    """The output of the run, its folder OUTPUT_slurm, or the job id."""


class StatusSettings(SubmittedSettings, JsonSettings):
    """Parameters of `ng submit status`."""


class LogsSettings(SubmittedSettings):
    """Parameters of `ng submit logs`."""

    node: str | None = None
    """Print the log of the servers on this node. Default: the log of the script and of the collection."""
    follow: bool = False
    """Print new lines until the job ends."""
    timeout_s: PositiveInt | None = None
    """Follow the log for at most this many seconds, then exit with code 124."""


class CancelSettings(SubmittedSettings):
    """Parameters of `ng submit cancel`."""

    now: bool = False
    """Cancel the job without waiting for running rollouts, which stay unresolved."""


def submit(words: list[str]) -> int:
    options = Options("ng submit", SubmitSettings, SUMMARY, takes_model=True, takes_sampling=True)
    # Accept `-c`, because the command of release 0.7 has this short flag.
    line = options.read(["--config" if word == "-c" else word for word in words])
    run = running.load_to_start(line.paths, line.overrides)
    settings = settings_from(SubmitSettings, run.plain)
    for key in ("only", "join", "detach"):
        if getattr(settings, key):
            raise UsageError(
                f"{key}: the job sets this key itself. Remove it. To choose the nodes of a server, use "
                "--place NAME=WHERE."
            )
    own = {*SubmitSettings.model_fields, "json"} - {*EndToEndSettings.model_fields} | {"dry_run"}
    plan = plan_of(
        run,
        settings,
        settings,
        line.paths,
        line.overrides,
        own_keys=own,
        collecting=partial(COLLECT_WITH_SERVERS.spelled, files=line.paths),
        serving=partial(Options("ng_run", StartSettings, takes_model=True).spelled, files=line.paths),
    )
    script = script_of(plan)
    if settings.resolve_only or settings.dry_run:
        if settings.as_json:
            printing.say_json(plan.as_json(script))
        else:
            printing.say_document(f"{script.rstrip()}\n")
        return 0
    for missing in unobtainable_files(run):
        printing.note(f"note: {missing}")
    _check_unused(settings, read_submission(plan.files))
    write_folder(plan.files, script)
    job_id = scheduler.submit(plan.files.script)
    submission = Submission(
        job_id=job_id,
        output=plan.files.output,
        nodes=settings.nodes,
        drain_s=settings.drain_s,
        submitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    write_submission(submission)
    if settings.as_json:
        shown = {"job_id": job_id, "folder": str(plan.files.folder), "output": str(plan.files.output)}
        printing.say_json(shown)
        return 0
    printing.say(f"submitted job {job_id} on {counted(settings.nodes, 'node')}")
    printing.say(f"rollouts: {plan.files.output}")
    printing.say(f"folder:   {plan.files.folder}")
    printing.say(f"next:     ng submit status {job_id} | ng submit logs {job_id} --follow | ng submit cancel {job_id}")
    return 0


def _check_unused(settings: SubmitSettings, earlier: Submission | None) -> None:
    """Raise `DataError` if a job that has not ended writes to the output.

    Also raise it if the output contains rollouts of an earlier run, unless `resume_from_cache` or `overwrite` is set.
    """
    if earlier is not None:
        state = scheduler.state_of(earlier.job_id)
        if state is not None and not state.has_ended:
            raise DataError(
                f"{earlier.output}: job {state.job_id} is {state.state} and uses this output. Wait for it, cancel it "
                f"with `ng submit cancel {state.job_id}`, or choose another output."
            )
    results = RunFiles(results=settings.output_jsonl_fpath)
    has_rollouts = any(path.exists() and path.stat().st_size for path in (results.results, results.failures))
    if has_rollouts and not settings.resume_from_cache and not settings.overwrite:
        raise DataError(
            f"{results.results} contains rollouts of an earlier run. Add --resume to continue it, --overwrite to "
            "replace it, or choose another output."
        )


def status(words: list[str]) -> int:
    """Show the job and the progress of a submitted run; return 1 if the job has failed."""
    summary = "Show the job of a submitted run and the outcomes of its rollouts so far."
    settings = Options("ng submit status", StatusSettings, summary, takes_config=False, named_by="run").settings(words)
    submission = find(settings.run)
    state, progress = scheduler.state_of(submission.job_id), _progress(submission)
    if settings.as_json:
        job = None if state is None else {**state._asdict(), "has_ended": state.has_ended}
        shown = {"job": job, "run": progress, "folder": str(submission.files.folder)}
        printing.say_json(shown)
    else:
        printing.say(_job_line(submission, state))
        printing.say(_progress_line(progress))
        printing.say(f"folder: {submission.files.folder}")
    return 1 if state is not None and state.has_ended and state.state != "COMPLETED" else 0


def _progress(submission: Submission) -> JsonObject | None:
    record = read_record(submission.files.run.record)
    if record is None:
        return None
    kept = ("state", "reason", "started_at", "ended_at", "outcomes", "exit_code", "ended_by", "slurm")
    return {key: value for key, value in record.model_dump(mode="json").items() if key in kept}


def _job_line(submission: Submission, state: JobState | None) -> str:
    if state is None:
        return f"job {submission.job_id}: Slurm does not know it any more"
    reason = f" ({state.reason})" if state.reason else ""
    where = f" on {state.nodes}" if state.nodes else ""
    return (
        f"job {state.job_id}: {state.state}{reason}{where}, attempt {state.attempt}, {state.elapsed or '0:00'} of "
        f"{state.limit or 'no limit'}"
    )


def _progress_line(progress: JsonObject | None) -> str:
    if progress is None:
        return "no rollout has started yet"
    outcomes = progress["outcomes"]
    failed = sum(outcomes["failed"].values())
    return (
        f"{progress['state']}: {outcomes['planned']} planned = {outcomes['scored']} scored + {failed} failed + "
        f"{outcomes['unresolved']} unresolved"
    )


def logs(words: list[str]) -> int:
    summary = "Print the log of a submitted run, or of the servers of one node."
    settings = Options("ng submit logs", LogsSettings, summary, takes_config=False, named_by="run").settings(words)
    submission = find(settings.run)
    files = submission.files
    path = files.log_of_node(settings.node) if settings.node else files.log_of(submission.job_id)
    if not path.exists() and not settings.follow:
        raise DataError(f"{path}: {_no_log(submission)}")
    deadline = None if settings.timeout_s is None else time.monotonic() + settings.timeout_s
    position = 0
    while True:
        # Ask Slurm for the state before reading the log, so that the last lines are not missed.
        state = scheduler.state_of(submission.job_id) if settings.follow else None
        position = _print_from(path, position)
        if not settings.follow or state is None or state.has_ended:
            return 0
        if deadline is not None and time.monotonic() > deadline:
            printing.note(f"job {submission.job_id}: still {state.state} after {settings.timeout_s} s")
            return TIMED_OUT
        time.sleep(POLL_S)


def _no_log(submission: Submission) -> str:
    names = sorted(path.name for path in submission.files.folder.glob("node-*.log"))
    nodes = ", ".join(name.removeprefix("node-").removesuffix(".log") for name in names)
    advice = f"Nodes with a log: {nodes}" if nodes else "Check the job with ng submit status"
    return f"there is no such log yet. {advice}."


def _print_from(path: Path, position: int) -> int:
    """Print a file from this position on, and return the position of its end."""
    if not path.exists():
        return position
    with path.open("rb") as file:
        file.seek(position)
        for line in iter(file.readline, b""):
            printing.say_document(line.decode(errors="replace"))
        return file.tell()


def cancel(words: list[str]) -> int:
    """Drain a submitted run, then cancel its job."""
    summary = "Cancel the job of a submitted run. Running rollouts may end first; no further one starts."
    settings = Options("ng submit cancel", CancelSettings, summary, takes_config=False, named_by="run").settings(words)
    submission = find(settings.run)
    job_id = submission.job_id
    state = scheduler.state_of(job_id)
    if state is None or state.has_ended:
        printing.say(f"job {job_id} has already ended{f': {state.state}' if state else ''}")
        return 0
    if not settings.now and state.state == "RUNNING" and scheduler.signal_script(job_id, "USR2"):
        _await_drain(submission)
    if (state := scheduler.state_of(job_id)) is not None and not state.has_ended:
        scheduler.cancel(job_id)
    state = _await_end(job_id)
    printing.say(f"job {job_id}: {state.state if state else 'ended'}. {_progress_line(_progress(submission))}")
    printing.say(f"next: submit again with --output {submission.output} --resume to continue")
    return 0


def _await_drain(submission: Submission) -> None:
    printing.note(
        f"draining job {submission.job_id}: running rollouts have {submission.drain_s} s to end (--now does not wait)"
    )
    deadline = time.monotonic() + submission.drain_s + END_S
    while time.monotonic() < deadline:
        state = scheduler.state_of(submission.job_id)
        if state is None or state.state != "RUNNING":
            return
        time.sleep(POLL_S)
    printing.note(f"job {submission.job_id} has not drained in time, so it is cancelled")


def _await_end(job_id: str) -> JobState | None:
    deadline = time.monotonic() + END_S
    while (state := scheduler.state_of(job_id)) is not None and not state.has_ended:
        if time.monotonic() > deadline:
            raise LaunchError(
                f"job {job_id} is still {state.state}, {END_S:g} s after scancel. Ask the cluster's administrators."
            )
        time.sleep(POLL_S)
    return state

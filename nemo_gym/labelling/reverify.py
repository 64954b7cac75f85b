"""The command that grades stored rollouts again, once or several times, to measure how much the verdicts vary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import Field

from nemo_gym.calls.client import ServerClient
from nemo_gym.cli import printing
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import CommandSettings, StartSettings
from nemo_gym.config.models import RunConfig
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.without_model import load_for_grading
from nemo_gym.errors import UsageError
from nemo_gym.jsonl import dump_json
from nemo_gym.labelling.agreement_report import variance_json, variance_text
from nemo_gym.labelling.grading_again import graded_once, with_graders, write
from nemo_gym.labelling.judge_variance import gradings_of, judge_variance, majority_agreement
from nemo_gym.labelling.labels import Labels, pairs_of, read_labels
from nemo_gym.launcher.local import RunningServers
from nemo_gym.rollouts.reverify import Reverification, ReverificationJob


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
    judge = settings_from(JudgeSettings, run.plain)
    labels = _check(settings_from(ReverificationJob, run.plain), judge, run)
    if judge.judge_repeats is None:
        return with_graders(run, graded_once)
    return with_graders(run, partial(_repeated, repeats=judge.judge_repeats, labels=labels))


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
    /,
    *,
    repeats: int,
    labels: Labels | None,
) -> int:
    """Grade all rollouts `repeats` times, and report how much the verdicts vary. Each repeat has its own file."""
    _check_cache(connect().address_book.settings)
    output = planned.job.output_jsonl_fpath
    files: list[Path] = []
    for repeat in range(1, repeats + 1):
        path = output.with_name(f"{output.stem}_judge{repeat}{output.suffix}")
        job = planned.job.model_copy(update={"output_jsonl_fpath": path, "disable_aggregation": True})
        printing.say(f"grading {repeat} of {repeats}:")
        written, code = write(run, connect(), replace(planned, job=job), servers)
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

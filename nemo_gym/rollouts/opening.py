"""Begin a run, or go on with an earlier one: its files, its tasks, and its record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_rows, write_rows
from nemo_gym.rollouts.amending import Amending
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.resume import EarlierRun, max_attempts
from nemo_gym.rollouts.run_record import Fingerprint, RecordKeeper, RunRecord, read_record
from nemo_gym.rollouts.subject import RunSubject
from nemo_gym.rollouts.tasks import TaskPlan


@dataclass
class OpenRun:
    """A run whose tasks are written down, and may be collected."""

    files: RunFiles
    settings: CollectionSettings
    summary: Summary
    earlier: EarlierRun
    record: RecordKeeper
    secrets: SecretValues = field(default_factory=SecretValues)
    """What is hidden in its records, whoever said it."""
    notes: list[str] = field(default_factory=list)
    """What the user should know of an earlier run that this one goes on with."""


@contextmanager
def open_run(
    plan: TaskPlan, files: RunFiles, subject: RunSubject | None = None, *, secrets: SecretValues | None = None
) -> Iterator[OpenRun]:
    """Write every task of the run to its file, and keep the run's record until the end.

    An output that is there already is refused, unless the settings say to resume or to overwrite. The caller holds
    the lock of the output.
    """
    run = _opened(plan, files, subject or RunSubject(), secrets or SecretValues())
    try:
        yield run
    except Exception as error:
        run.record.end("stopped", str(error) or repr(error))
        raise
    except BaseException:
        run.record.end("interrupted")
        raise
    finally:
        run.record.end("finished")


def _opened(plan: TaskPlan, files: RunFiles, subject: RunSubject, secrets: SecretValues) -> OpenRun:
    settings = plan.settings
    limit = max_attempts(settings)
    files.results.parent.mkdir(parents=True, exist_ok=True)
    prompt = plan.prompt_file()
    fingerprint = Fingerprint.of(prompt) if prompt else None
    if settings.resume_from_cache and files.materialized.exists() and files.results.exists():
        before = read_record(files.record)
        earlier = EarlierRun.read(files, limit)
        amending = Amending(plan, files, subject, fingerprint, earlier, before)
        notes = list(amending.amend(force=settings.resume_from_cache == "force").notes())
        summary = earlier.count(read_rows(files.materialized))
        if summary.given_up:
            notes.append(
                f"tasks that failed too often to be tried again: {summary.given_up} (more +max_attempts allow it)"
            )
    else:
        before, earlier, notes = None, EarlierRun(limit=limit), []
        summary = Summary(planned=_begin(plan, files))
    record = RunRecord.begin(
        subject, settings, summary, input_file=Fingerprint.of(plan.input), prompt=fingerprint, earlier=before
    )
    keeper = RecordKeeper(files.record, record, summary, secrets)
    return OpenRun(files, settings, summary, earlier, keeper, secrets, notes)


def _begin(plan: TaskPlan, files: RunFiles) -> int:
    """Write the tasks of a run that nothing is left of, and say how many there are."""
    leftovers = [path for path in (files.results, files.failures) if path.exists() and path.stat().st_size]
    for path in leftovers:
        _check_replaceable(path, plan, files)
    # The old results go before the new tasks come: whenever this is interrupted, the two never belong to two runs.
    staged = files.materialized.with_name(f".{files.materialized.name}.staged")
    try:
        planned = write_rows(staged, plan.rows())
        for path in (*leftovers, files.metrics, files.record):
            path.unlink(missing_ok=True)
        staged.replace(files.materialized)
    finally:
        staged.unlink(missing_ok=True)
    return planned


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

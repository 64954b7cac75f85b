"""Start a run or resume an earlier one: its files, its tasks and its record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.errors import DataError, InvalidTask
from nemo_gym.jsonl import read_rows, write_rows
from nemo_gym.rollouts.amending import Amending
from nemo_gym.rollouts.control.registry import Collection, registered
from nemo_gym.rollouts.group_order import check_groups
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.line_digests import accept_lines, check_lines
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.resume import EarlierRun, max_attempts
from nemo_gym.rollouts.run_record import Fingerprint, RecordKeeper, RunRecord, read_record, recorded_settings
from nemo_gym.rollouts.subject import RunSubject
from nemo_gym.rollouts.tasks import TaskPlan
from nemo_gym.rollouts.usage import PriceFile
from nemo_gym.schemas.responses import PLAYED_WITHOUT_MODEL
from nemo_gym.schemas.row import TASK_INDEX_KEY, Row, rows_in


@dataclass
class OpenRun:
    """A run whose tasks are written and ready to be collected."""

    files: RunFiles
    plan: TaskPlan
    settings: CollectionSettings
    summary: Summary
    earlier: EarlierRun
    record: RecordKeeper
    secrets: SecretValues = field(default_factory=SecretValues)
    """The secret values to mask in the run's files."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user about the resumed run."""
    prices: PriceFile | None = None
    collection: Collection | None = None
    """The entry of this run in the list of running collections; None if the user has no folder for such entries."""
    earlier_ids: list[str] = field(default_factory=list)
    """The ids of the earlier runs that this run continues or replaces."""
    tasks: int = 0
    """The number of different tasks. Each may be repeated."""
    has_groups: bool = False
    """Whether the repeats of a task are verified together."""
    warnings: list[str] = field(default_factory=list)
    """Warnings about the run, for the end of it."""


@contextmanager
def open_run(
    plan: TaskPlan, files: RunFiles, subject: RunSubject | None = None, *, secrets: SecretValues | None = None
) -> Iterator[OpenRun]:
    """Write the run's tasks to their file. Keep the run's record up to date until the `with` block ends.

    An existing output is rejected unless the settings say to resume or overwrite. The caller must hold the lock of
    the output.
    """
    run = _opened(plan, files, subject or RunSubject(), secrets or SecretValues())
    with run.record.until_the_end(), registered(files, run.record.identity) as run.collection:
        yield run


def _opened(plan: TaskPlan, files: RunFiles, subject: RunSubject, secrets: SecretValues) -> OpenRun:
    settings = plan.settings
    limit = max_attempts(settings)
    prices = PriceFile.read(settings.prices) if settings.prices else None
    files.check_not_read(plan.read_files())
    files.results.parent.mkdir(parents=True, exist_ok=True)
    files.remove_unfinished()
    replaced = read_record(files.record)
    prompt = plan.prompt_file()
    fingerprint = Fingerprint.of(prompt) if prompt else None
    if settings.resume_from_cache and files.materialized.exists() and files.results.exists():
        before = replaced
        is_forced = settings.resume_from_cache == "force"
        earlier = EarlierRun.read(files, limit, retries_invalid=is_forced)
        (accept_lines if is_forced else check_lines)(files)
        if is_forced:
            # The model or the rows may have changed since these rollouts ended.
            files.ungraded.unlink(missing_ok=True)
        amending = Amending(plan, files, subject, fingerprint, earlier, before)
        notes = list(amending.amend(force=is_forced).notes())
        has_groups = check_groups(files.materialized, plan.rules.grouped, settings)
        rows = _Rows(rows_in(files.materialized))
        summary, tasks = earlier.count(rows), rows.tasks
        notes += _given_up(summary, is_forced=is_forced)
    else:
        before, earlier, notes = None, EarlierRun(limit=limit), []
        begun = _begin(plan, files)
        summary, tasks, has_groups = Summary(planned=begun.planned), begun.tasks, begun.has_groups
    record = RunRecord.begin(
        subject,
        recorded_settings(settings),
        summary,
        input_file=Fingerprint.of(plan.input),
        prompt=fingerprint,
        earlier=before,
    )
    keeper = RecordKeeper(files.record, record, summary, secrets, prices)
    opened = OpenRun(
        files, plan, settings, summary, earlier, keeper, secrets, notes, prices, tasks=tasks, has_groups=has_groups
    )
    opened.earlier_ids = [replaced.run_id] if replaced and replaced.run_id else []
    return opened


class _Rows:
    """An iterator over the rows of a run that counts the tasks."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.tasks = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.tasks += row.key.repeat == 0
            yield row


class _Begun(NamedTuple):
    planned: int
    tasks: int
    has_groups: bool


def _given_up(summary: Summary, *, is_forced: bool) -> Iterator[str]:
    invalid = 0 if is_forced else summary.failed_by_cause[InvalidTask.failure_class]
    if invalid:
        yield f"invalid tasks, not retried: {invalid} (correct their rows and add --resume=force to retry them)"
    if failed := summary.given_up - invalid:
        yield f"tasks not retried after too many failures: {failed} (raise +max_attempts to retry them)"


def _begin(plan: TaskPlan, files: RunFiles) -> _Begun:
    """Write a new run's tasks, replacing an earlier run."""
    leftovers = [
        path for path in (files.results, files.failures, files.ungraded) if path.exists() and path.stat().st_size
    ]
    for path in leftovers:
        _check_replaceable(path, plan, files)
    if not plan.settings.overwrite:
        check_companions(files)
    # Remove the old results before the new tasks appear, so that an interruption cannot mix two runs.
    staged = files.staged
    try:
        rows = _Rows(plan.rows())
        planned = write_rows(staged, (row.fields for row in rows))
        has_groups = check_groups(staged, plan.rules.grouped, plan.settings)
        for path in (*leftovers, files.metrics, files.record, files.digests):
            path.unlink(missing_ok=True)
        staged.replace(files.materialized)
    finally:
        staged.unlink(missing_ok=True)
    return _Begun(planned, rows.tasks, has_groups)


def _check_replaceable(path: Path, plan: TaskPlan, files: RunFiles) -> None:
    if plan.settings.overwrite or (path == files.results and _are_examples(files)):
        return
    if plan.settings.resume_from_cache:
        missing = files.results if files.materialized.exists() else files.materialized
        raise DataError(
            f"{path} contains rollouts of an earlier run, which cannot be resumed without {missing}. Restore that "
            "file, add --overwrite to start over, or choose another output."
        )
    raise DataError(
        f"{path} contains rollouts of an earlier run. Add --resume to continue it, "
        "--overwrite to replace it, or choose another output."
    )


def check_companions(files: RunFiles) -> None:
    """Raise `DataError` if the files next to this output belong to another output.

    Outputs that differ only after the last dot, such as `model-1.5` and `model-1.7`, share these files.
    """
    companions = (files.materialized, files.failures, files.ungraded, files.metrics, files.record, files.digests)
    shared = next((path for path in companions if path.exists()), None)
    if shared is None:
        return
    for other in sorted(files.results.parent.iterdir()):
        if other.stem == files.results.stem and other.name != files.results.name and _is_output(other):
            raise DataError(
                f"{files.results}: the run would replace {shared.name}, which belongs to {other}, because both names "
                "are the same up to the last dot. Choose an output whose name differs before it, or add --overwrite "
                "to replace the file."
            )


def _is_output(path: Path) -> bool:
    """Return whether a run writes to this file, or has written rollouts to it."""
    if not path.is_file():
        return False
    if RunFiles(results=path).lock.exists():
        return True
    with suppress(DataError):
        return TASK_INDEX_KEY in next(read_rows(path), {})
    return False


def _are_examples(files: RunFiles) -> bool:
    """Return whether `ng env check` made all results without a model. Such results may be replaced."""
    if files.record.exists() or files.materialized.exists():
        return False
    try:
        return all((Row(row).response or {}).get("id") == PLAYED_WITHOUT_MODEL for row in read_rows(files.results))
    except DataError:
        return False

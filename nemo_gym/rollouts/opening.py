"""Start a run or resume an earlier one: its files, its tasks and its record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import DataError, InvalidTask
from nemo_gym.jsonl import dump_json, read_rows, write_rows
from nemo_gym.rollouts.amending import Amending
from nemo_gym.rollouts.control.registry import Collection, registered
from nemo_gym.rollouts.groups import check_groups
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.ledger import Planned, last_event_at
from nemo_gym.rollouts.ledger_check import KnownPlan, agree
from nemo_gym.rollouts.ledger_writer import LedgerWriter
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.resume import EarlierRun, keys_in, max_attempts
from nemo_gym.rollouts.run_record import (
    Fingerprint,
    RecordKeeper,
    RunRecord,
    read_record,
    recorded_settings,
    session_of,
)
from nemo_gym.rollouts.tasks import TaskPlan
from nemo_gym.rollouts.usage import PriceFile
from nemo_gym.schemas.responses import PLAYED_WITHOUT_MODEL
from nemo_gym.schemas.row import TASK_INDEX_KEY, Row, TaskKey
from nemo_gym.version import __version__

TASK_SETTINGS = {
    "agent_name", "limit", "shard", "num_repeats", "num_repeats_add_seed", "responses_create_params",
}  # fmt: skip
"""The settings that the tasks of a run depend on, besides its files."""


@dataclass
class OpenRun:
    """A run whose tasks are written and ready to be collected."""

    files: RunFiles
    plan: TaskPlan
    settings: CollectionSettings
    summary: Summary
    earlier: EarlierRun
    record: RecordKeeper
    ledger: LedgerWriter
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
    with run.record, registered(files, run.record.run_id) as run.collection:
        yield run


def _opened(plan: TaskPlan, files: RunFiles, subject: RunSubject, secrets: SecretValues) -> OpenRun:
    settings = plan.settings
    prices = PriceFile.read(settings.prices) if settings.prices else None
    files.check_not_read(plan.read_files())
    files.results.parent.mkdir(parents=True, exist_ok=True)
    files.remove_unfinished()
    replaced = read_record(files.record)
    prompt = plan.prompt_file()
    what = _Origin(plan, files, subject, Fingerprint.of(plan.input), Fingerprint.of(prompt) if prompt else None)
    if settings.resume_from_cache and files.materialized.exists() and files.results.exists():
        begun = _continue(what, replaced)
    else:
        begun = _begin(what)
    ledger = LedgerWriter(files, hide=secrets.mask_bytes if secrets else None, prices=prices)
    record = RunRecord.begin(
        files.record, subject, recorded_settings(settings),
        input_file=what.input_file, prompt=what.prompt, earlier=begun.record,
    )  # fmt: skip
    ledger.add(session_of(str(record.run_id), record.settings, subject, what.digest))
    # If the machine crashes, this event must not be lost while rows are kept. They would not count as the run's.
    ledger.sync()
    listed = begun.listed or ledger.list_tasks(has_groups=begun.has_groups)
    summary = begun.earlier.summary(listed.rollouts, begun.keys)
    notes = [*begun.notes, *_given_up(summary, is_forced=settings.resume_from_cache == "force")]
    keeper = RecordKeeper(files.record, record, summary, ledger, secrets, prices=prices)
    opened = OpenRun(
        files, plan, settings, summary, begun.earlier, keeper, ledger, secrets, notes, prices,
        tasks=listed.tasks, has_groups=begun.has_groups,
    )  # fmt: skip
    opened.earlier_ids = [replaced.run_id] if replaced and replaced.run_id else []
    return opened


@dataclass(frozen=True)
class _Origin:
    """What a run is made from."""

    plan: TaskPlan
    files: RunFiles
    subject: RunSubject
    input_file: Fingerprint
    prompt: Fingerprint | None

    @property
    def digest(self) -> str | None:
        """A digest of all that the tasks depend on; None if it is unknown."""
        settings = self.plan.settings
        if self.subject.config_hash is None or settings.skills is not None:
            return None
        facts = [
            __version__, self.subject.model_dump(), self.input_file.sha256, self.prompt and self.prompt.sha256,
            settings.model_dump(mode="json", include=TASK_SETTINGS),
        ]  # fmt: skip
        return hashlib.sha256(dump_json(facts, sorts_keys=True)).hexdigest()[:16]

    def has_groups(self, rows: Path) -> bool:
        return check_groups(rows, self.plan.rules.grouped, self.plan.settings)


class _Begun(NamedTuple):
    """A run whose rows are written."""

    earlier: EarlierRun
    has_groups: bool
    listed: Planned | None = None
    """The planned rollouts, if the ledger lists them already."""
    keys: Iterable[TaskKey] | None = None
    """The keys of the planned rollouts; None if they are those of the earlier session."""
    notes: Sequence[str] = ()
    record: RunRecord | None = None
    """The record of the earlier session."""


def _continue(what: _Origin, record: RunRecord | None) -> _Begun:
    """Amend the tasks of an earlier run."""
    plan, files = what.plan, what.files
    if record is not None and record.state == "running" and (killed_at := last_event_at(files)) is not None:
        # Because this process holds the output's lock, the session must have been killed.
        ended_at = killed_at.isoformat(timespec="seconds")
        record = record.model_copy(update={"state": "killed", "ended_at": ended_at})
    is_forced = plan.settings.resume_from_cache == "force"
    agree(files, accepts_all=is_forced)
    earlier = EarlierRun.read(files, max_attempts(plan.settings), retries_invalid=is_forced)
    if is_forced:
        # The model or the rows may have changed since these rollouts ended.
        files.ungraded.unlink(missing_ok=True)
    known = KnownPlan.read(files)
    if known.planned is not None and known.digest is not None and known.digest == what.digest:
        # Nothing that the tasks depend on has changed, so there is no need to read them.
        return _Begun(earlier, known.planned.has_groups, known.planned, record=record)
    amending = Amending(plan, files, what.subject, what.prompt, earlier, record)
    notes = list(amending.amend(force=is_forced).notes())
    has_groups = what.has_groups(files.materialized)
    return _Begun(earlier, has_groups, KnownPlan.read(files).planned, keys_in(files.materialized), notes, record)


def _begin(what: _Origin) -> _Begun:
    """Write a new run's tasks, replacing an earlier run."""
    plan, files = what.plan, what.files
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
        write_rows(staged, (row.fields for row in plan.rows()))
        has_groups = what.has_groups(staged)
        for path in (*leftovers, files.metrics, files.record, files.ledger):
            path.unlink(missing_ok=True)
        staged.replace(files.materialized)
    finally:
        staged.unlink(missing_ok=True)
    return _Begun(EarlierRun(limit=max_attempts(plan.settings)), has_groups)


def _given_up(summary: Summary, *, is_forced: bool) -> Iterator[str]:
    invalid = 0 if is_forced else summary.failed_by_cause[InvalidTask.failure_class]
    if invalid:
        yield f"invalid tasks, not retried: {invalid} (correct their rows and add --resume=force to retry them)"
    if failed := summary.given_up - invalid:
        yield f"tasks not retried after too many failures: {failed} (raise +max_attempts to retry them)"


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
    companions = (files.materialized, files.failures, files.ungraded, files.metrics, files.record, files.ledger)
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

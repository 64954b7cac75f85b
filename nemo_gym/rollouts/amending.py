"""Resume a run whose input or settings have changed: amend its tasks, or reject changes that would mix results."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_json, write_rows
from nemo_gym.rollouts.job import RunFiles, Shard
from nemo_gym.rollouts.numbering import TaskNumbers, digest_of
from nemo_gym.rollouts.resume import EarlierRun, keyed_rows
from nemo_gym.rollouts.run_record import Fingerprint, RunRecord
from nemo_gym.rollouts.tasks import PlannedRow, TaskPlan
from nemo_gym.schemas.row import Row, TaskKey, rows_in

LOOKED_INTO = 100
"""The maximum number of changed tasks that are compared field by field."""
FIELDS_NAMED = 5
SHOWN_CHARACTERS = 40
SHOWN_BEFORE = 10
SEED_SETTING = "num_repeats_add_seed"
PART_SETTING = "shard"
PROMPTED_FIELD = "responses_create_params.input"
LINES_SEARCHED = 5_000
"""The maximum number of lines that `place_of` searches, because the rollouts wait for the search."""


def content_of(row: Row) -> Mapping[str, object]:
    """Return the fields of a row without its task, repeat and attempt numbers and without the seed of a repeat."""
    content = row.without_numbers().fields
    params, extra_body = row.params, row.extra_body
    # Metadata may be null or empty in the input, while a repeat with a seed has metadata.
    metadata = (params or {}).get("metadata") or {}
    if params is None or extra_body is None or not isinstance(metadata, dict):
        return content
    extra_body.pop("seed", None)
    kept = {key: value for key, value in metadata.items() if key != "extra_body"}
    if extra_body:
        kept["extra_body"] = dump_json(extra_body, sorts_keys=True).decode()
    without = {key: value for key, value in params.items() if key != "metadata"}
    return {**content, "responses_create_params": {**without, **({"metadata": kept} if kept else {})}}


def content_digest(row: Row) -> int:
    """Return a 64-bit digest of a row's content. The order of the row's fields does not affect the digest."""
    return digest_of(dump_json(content_of(row), sorts_keys=True))


class KnownTask(NamedTuple):
    """A task of the earlier run."""

    digest: int
    """The digest of the content of the task's first repeat."""
    repeats: int
    agent: str


def place_of(plan: TaskPlan, row: Row) -> str | None:
    """Return the file and line of a task's row, or None if the row is not among the first `LINES_SEARCHED` lines.

    If the rows were copied from datasets, return the line in the dataset's file, unless the row has changed there.
    """
    wanted = _sent(row)
    for rows in (plan.placed_in_sources(), plan.placed()):
        with suppress(OSError, DataError):
            for place, planned in islice(rows, LINES_SEARCHED):
                if _sent(planned) == wanted:
                    return place
    return None


def _sent(row: Row) -> Mapping[str, object]:
    content = content_of(row.without_outcome())
    return {key: value for key, value in content.items() if key != "skills_ref"}


@dataclass
class KnownTasks:
    """The tasks of a materialized file, in file order."""

    tasks: dict[int, KnownTask] = field(default_factory=dict)
    deviating: dict[TaskKey, int] = field(default_factory=dict)
    """The digests of repeats whose content differs from that of their task's first repeat."""

    @classmethod
    def read(cls, materialized: Path) -> KnownTasks:
        """Read the tasks. Raise `DataError` if the repeats of a task are not those that a run has written.

        Otherwise, a repeat could run twice, because an amended run adds repeats after the known number of them.
        """
        known = cls()
        agents: dict[str, str] = {}
        squares = Counter[int]()
        """The sum of the squares of each task's repeats. It takes less memory than a set of them."""
        for key, row in keyed_rows(materialized):
            squares[key.task] += key.repeat**2
            digest = content_digest(row)
            before = known.tasks.get(key.task)
            if before is None:
                agent = str(row.agent)
                known.tasks[key.task] = KnownTask(digest, 1, agents.setdefault(agent, agent))
                continue
            known.tasks[key.task] = before._replace(repeats=before.repeats + 1)
            if digest != before.digest:
                known.deviating[key] = digest
        for number, task in known.tasks.items():
            last = task.repeats - 1
            if squares[number] != last * (last + 1) * (2 * last + 1) // 6:
                raise DataError(
                    f"{materialized}: the repeats of task {number} are not complete, or listed twice. Restore the "
                    "file, add --overwrite to start over, or choose another output."
                )
        return known

    def differs(self, task: int, planned: PlannedRow, digest: int) -> bool:
        """Return whether any known repeat of this row has a content digest other than `digest`."""
        known = self.tasks[task]
        last = min(planned.first + planned.repeats, known.repeats)
        return any(
            self.deviating.get(TaskKey(task, repeat), known.digest) != digest for repeat in range(planned.first, last)
        )


@dataclass
class Matching:
    """The assignment of input rows to tasks of the run.

    A row's input number is the task number that it would have in a new run.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    """Each row's task number in this run, keyed by the task number that it would have in a new run."""
    changed: dict[int, int] = field(default_factory=dict)
    """For each changed row, the task number that it would have in a new run, keyed by its task number in this run."""
    repeats: Counter[int] = field(default_factory=Counter)
    """The number of repeats of each task that the input requests."""

    def task_of(self, planned: PlannedRow) -> int:
        return planned.task if planned.has_own_number else self.numbers[planned.task]


class _UnmatchedRow(NamedTuple):
    """A row whose content does not match any known task."""

    number: int
    place: tuple[str, int | None]
    """The row's agent, and the last known task of that agent before this row."""


def match(known: KnownTasks, planned: Iterable[PlannedRow], numbers: TaskNumbers, part: Shard) -> Matching:
    """Match the rows of an input to the known tasks by content, regardless of their order.

    An unmatched row counts as changed if a known task is missing at its place, between the same neighbours of the
    same agent. Otherwise it is new, and gets a number of the run's part of the tasks. A row with its own task number
    belongs to that task.
    """
    matching = Matching()
    free = _FreeTasks(known, numbers.taken)
    unmatched: list[_UnmatchedRow] = []
    latest: dict[str, int] = {}
    asked: Counter[int] = Counter()
    for row in planned:
        number, agent = row.task, str(row.row.agent)
        if row.has_own_number:
            matching.repeats[number] += row.repeats
            if number in known.tasks and known.differs(number, row, content_digest(row.row)):
                matching.changed[number] = number
            continue
        asked[number] += row.repeats
        if asked[number] > row.repeats:
            continue  # An identical line has already been handled.
        same = free.take(content_digest(row.row))
        if same is not None:
            latest[agent] = matching.numbers[number] = same
        else:
            unmatched.append(_UnmatchedRow(number, (agent, latest.get(agent))))
    _assign(matching, known, unmatched, numbers.taken, part)
    for number, repeats in asked.items():
        matching.repeats[matching.numbers[number]] += repeats
    return matching


class _FreeTasks:
    """The known tasks, by content, that are not yet matched to an input row."""

    def __init__(self, known: KnownTasks, taken: Container[int]) -> None:
        self._first: dict[int, int] = {}
        # Only tasks with the content of an earlier task get a queue. A queue for each task would take too much memory.
        self._others: dict[int, deque[int]] = {}
        for number, task in known.tasks.items():
            if number in taken:
                continue
            if task.digest in self._first:
                self._others.setdefault(task.digest, deque()).append(number)
            else:
                self._first[task.digest] = number

    def take(self, digest: int) -> int | None:
        """Remove and return the next task with this content, or return None if there is none."""
        number = self._first.pop(digest, None)
        if others := self._others.get(digest):
            self._first[digest] = others.popleft()
        return number


def _assign(
    matching: Matching, known: KnownTasks, unmatched: list[_UnmatchedRow], taken: Container[int], part: Shard
) -> None:
    """Assign each unmatched row to a known task that is missing at the row's place, or else to a new task."""
    if not unmatched:
        return
    found = set(matching.numbers.values()) | set(matching.repeats)
    missing: dict[tuple[str, int | None], deque[int]] = defaultdict(deque)
    latest: dict[str, int] = {}
    for number, task in known.tasks.items():
        if number in found:
            latest[task.agent] = number
        elif number not in taken:
            missing[task.agent, latest.get(task.agent)].append(number)
    free = part.number - 1
    for row in unmatched:
        if candidates := missing.get(row.place):
            task_number = candidates.popleft()
            matching.changed[task_number] = row.number
        else:
            while free in known.tasks or free in taken:
                free += part.of
            task_number, free = free, free + part.of
        matching.numbers[row.number] = task_number


@dataclass
class Amendment:
    """The changes to the tasks of a resumed run."""

    added: int = 0
    """The number of rollouts that the earlier run had not planned."""
    replaced: int = 0
    """The number of unscored rollouts whose row has changed."""
    surplus: int = 0
    """The number of rollouts of the earlier run that are no longer in the input."""

    def notes(self) -> Iterator[str]:
        if self.added:
            yield f"rollouts added to the earlier run: {self.added}"
        if self.replaced:
            yield f"unscored rollouts of the earlier run whose row has changed: {self.replaced}"
        if self.surplus:
            yield f"rollouts that are no longer in the input but remain part of the run: {self.surplus}"


class FieldChange(NamedTuple):
    """The old and the new value of a field in a task's row, as text."""

    task: int
    before: str
    now: str


@dataclass(frozen=True)
class Amending:
    """The resumption of an earlier run whose input or settings may have changed."""

    plan: TaskPlan
    files: RunFiles
    subject: RunSubject
    prompt: Fingerprint | None
    earlier: EarlierRun
    record: RunRecord | None
    """The record of the earlier run; None if it is missing or unreadable."""

    def amend(self, *, force: bool) -> Amendment:
        """Add new and changed rows to the materialized file, atomically.

        If rows or settings have changed so that old and new results are not comparable, raise `DataError` with a list
        of the differences, unless `force` is set.
        """
        numbers = self.plan.check()
        known = KnownTasks.read(self.files.materialized)
        matching = match(known, self.plan.planned(numbers), numbers, self.plan.settings.part)
        if not force and (differences := [*self._other_settings(), *self._other_rows(matching, numbers)]):
            raise DataError(
                f"{self.files.results} was started with {', '.join(differences)}. Restore these values, add "
                "--resume=force to resume anyway, add --overwrite to start over, or choose another output."
            )
        amendment = Amendment(
            surplus=sum(max(0, task.repeats - matching.repeats[n]) for n, task in known.tasks.items())
        )
        repeats_of = {number: task.repeats for number, task in known.tasks.items()}
        if matching.changed or any(count > repeats_of.get(n, 0) for n, count in matching.repeats.items()):
            self.plan.check_size(numbers)
            write_rows(self.files.materialized, self._rows(repeats_of, matching, numbers, amendment))
        return amendment

    def _rows(
        self, known: Mapping[int, int], matching: Matching, numbers: TaskNumbers, amendment: Amendment
    ) -> Iterator[Mapping[str, object]]:
        """Yield all rows of the amended run: first the kept rows, then the replaced and added ones."""
        for row in rows_in(self.files.materialized):
            key = row.key
            is_replaced = key.task in matching.changed and key.repeat < matching.repeats[key.task]
            if not is_replaced or key in self.earlier.scored:
                yield row.fields
        for planned in self.plan.planned(numbers):
            task = matching.task_of(planned)
            for repeat in range(planned.first, planned.first + planned.repeats):
                is_known = repeat < known.get(task, 0)
                if is_known and (task not in matching.changed or TaskKey(task, repeat) in self.earlier.scored):
                    continue
                amendment.replaced += is_known
                amendment.added += not is_known
                yield self.plan.repeated(planned.row.of_task(task), repeat).fields

    def _has_other_prompt(self) -> bool:
        if self.record is None:
            return False
        before, now = self.record.prompt, self.prompt
        return (before and before.sha256) != (now and now.sha256)

    def _has_other_part(self) -> bool:
        return self.record is not None and self.record.settings.get(PART_SETTING) != self.plan.settings.shard

    def _other_settings(self) -> Iterator[str]:
        if self.record is None:
            return
        # Without an ended rollout, a corrected key or model name changes nothing that was measured.
        ungraded = self.files.ungraded
        has_ended = self.earlier.scored or (ungraded.exists() and ungraded.stat().st_size)
        models = self.subject.differences_from(self.record.subject) if has_ended else []
        if models:
            yield f"another model: {', '.join(models)}"
        if self._has_other_prompt():
            before = self.record.prompt.path if self.record.prompt else "none"
            now = self.prompt.path if self.prompt else "none"
            yield f"another prompt_config ({before}{' has changed' if before == now else f', now {now}'})"
        if self.record.settings.get(SEED_SETTING, False) != self.plan.settings.num_repeats_add_seed:
            yield f"another {SEED_SETTING}"
        if self._has_other_part():
            before_part, now_part = self.record.settings.get(PART_SETTING), self.plan.settings.shard
            yield f"another {PART_SETTING} ({before_part or 'none'}, now {now_part or 'none'})"

    def _other_rows(self, matching: Matching, numbers: TaskNumbers) -> Iterator[str]:
        # The tasks of another part are other rows.
        if not matching.changed or self._has_other_part():
            return
        changes = self._changes(matching, numbers)
        if self._has_other_prompt():
            changes.pop(PROMPTED_FIELD, None)
            if not changes:
                return
        for name, found in islice(changes.items(), FIELDS_NAMED):
            task, before, now = found[0]
            others = len(found) - 1
            is_more = len(matching.changed) > LOOKED_INTO and others
            more = f"; {'at least ' if is_more else ''}{others} more tasks" if others else ""
            yield f"another {name} (task {task}: {before}, now {now}{more})"
        if not changes:
            yield f"another row of task {next(iter(matching.changed))}"
        if (hidden := len(changes) - FIELDS_NAMED) > 0:
            yield f"{hidden} other fields"

    def _changes(self, matching: Matching, numbers: TaskNumbers) -> dict[str, list[FieldChange]]:
        """Return, for each changed field, its old and new values in the first `LOOKED_INTO` changed tasks."""
        looked_into = set(islice(matching.changed, LOOKED_INTO))
        now = {
            TaskKey(task, planned.first): content_of(planned.row)
            for planned in self.plan.planned(numbers)
            if (task := matching.task_of(planned)) in looked_into
        }
        changes: dict[str, list[FieldChange]] = {}
        for row in rows_in(self.files.materialized):
            if row.key in now:
                for field, old, new in _differences(content_of(row), now[row.key]):
                    changes.setdefault(field, []).append(FieldChange(row.key.task, old, new))
        return changes


def _differences(
    before: Mapping[str, object], now: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted name of each changed field with its old and new value as text."""
    for key in dict.fromkeys((*before, *now)):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new or (key in before) != (key in now):
            texts = [orjson.dumps(fields[key]).decode() if key in fields else "absent" for fields in (before, now)]
            start = _start_of_excerpt(*texts)
            old_text, new_text = (_excerpt(text, start) for text in texts)
            yield f"{prefix}{key}", old_text, new_text


def _start_of_excerpt(before: str, now: str) -> int:
    """Return where excerpts of two texts begin, so that both show the first difference."""
    pairs = enumerate(zip(before, now, strict=False))
    same = next((at for at, (old, new) in pairs if old != new), min(len(before), len(now)))
    return 0 if same + SHOWN_BEFORE <= SHOWN_CHARACTERS else same - SHOWN_BEFORE


def _excerpt(text: str, start: int) -> str:
    end = start + SHOWN_CHARACTERS
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"

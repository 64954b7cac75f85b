"""Resume a run whose input or settings have changed: amend its tasks, or reject changes that would mix results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import orjson

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, write_rows
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.matching import KnownTasks, Matching, content_of, match
from nemo_gym.rollouts.numbering import TaskNumbers
from nemo_gym.rollouts.resume import EarlierRun
from nemo_gym.rollouts.run_record import Fingerprint, RunRecord
from nemo_gym.rollouts.subject import RunSubject
from nemo_gym.rollouts.tasks import TaskPlan
from nemo_gym.schemas.row import TaskKey, rows_in

LOOKED_INTO = 100
"""The maximum number of changed tasks that are compared field by field."""
FIELDS_NAMED = 5
SHOWN_CHARACTERS = 40
SHOWN_BEFORE = 10
SEED_SETTING = "num_repeats_add_seed"
PART_SETTING = "shard"
PROMPTED_FIELD = "responses_create_params.input"


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
    ) -> Iterator[JsonObject]:
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
        for field, found in islice(changes.items(), FIELDS_NAMED):
            task, before, now = found[0]
            others = len(found) - 1
            is_more = len(matching.changed) > LOOKED_INTO and others
            more = f"; {'at least ' if is_more else ''}{others} more tasks" if others else ""
            yield f"another {field} (task {task}: {before}, now {now}{more})"
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


def _differences(before: JsonObject, now: JsonObject, prefix: str = "") -> Iterator[tuple[str, str, str]]:
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

"""Build the SQL of a filter and of a sort order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from nemo_gym.errors import UsageError
from nemo_gym.schemas.row import TaskKey
from nemo_gym.text import did_you_mean
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.entry import REPEAT_BITS, id_of
from nemo_gym.viewer.index.fields import Field, fitting
from nemo_gym.viewer.notes import Note

SORT_COLUMNS = {
    "task": "id", "agent": "agent", "outcome": "outcome", "reward": "reward", "failure": "failure",
    "attempts": "attempts", "steps": "steps", "tool_calls": "tool_calls", "input_tokens": "input_tokens",
    "output_tokens": "output_tokens", "seconds": "seconds", "bytes": "bytes",
}  # fmt: skip
"""The database column for each `SortKey` in api.ts."""
Value = str | int | float | None


@dataclass
class Selected:
    """A FROM and a WHERE clause, with their parameters."""

    tables: str = "rollouts"
    conditions: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def join(self, table: str) -> None:
        """Join a table on the rollouts' id, unless it is already joined."""
        join = f" JOIN {table} USING (id)"
        if join not in self.tables:
            self.tables += join

    def add(self, condition: str, *values: Value) -> None:
        self.conditions.append(condition)
        self.values.extend(values)

    def add_any(self, column: str, wanted: Iterable[Value]) -> None:
        """Require that a column has one of these values. If the list is empty, require nothing."""
        values = list(wanted)
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *values)

    @property
    def clause(self) -> str:
        """The FROM and WHERE clauses."""
        where = " AND ".join(f"({each})" for each in self.conditions)
        return f"FROM {self.tables}" + (f" WHERE {where}" if where else "")


class Order(NamedTuple):
    """A sort order of rollouts. Rollouts without a value are last. Ties are in the order of task and repeat."""

    column: str
    table: str | None
    """The table of the column if rollouts are sorted by a field, else None."""
    is_descending: bool

    @property
    def join(self) -> str:
        """The part of the FROM clause that the order needs."""
        return f" LEFT JOIN {self.table} AS sorted USING (id)" if self.table else ""

    @property
    def clause(self) -> str:
        """The ORDER BY clause."""
        return f"ORDER BY {self.column} {'DESC' if self.is_descending else 'ASC'} NULLS LAST, id"

    @property
    def is_by_task(self) -> bool:
        """Whether rollouts are sorted by task and repeat, which is the order of the index itself."""
        return self.column == "id"


def order_of(sort: str, fields: Mapping[str, Field], *, is_descending: bool, parameter: str = "sort") -> Order:
    """Return the sort order for a column or a field. Raise `UsageError` for an unknown name."""
    if sort in SORT_COLUMNS:
        return Order(SORT_COLUMNS[sort], None, is_descending)
    if sort in fields:
        field = fields[sort]
        return Order(f"sorted.{field.column}", field.table, is_descending)
    known = [*SORT_COLUMNS, *fields]
    raise UsageError(f"{parameter}={sort[:100]}: not a column of this run.{did_you_mean(sort, known)}")


def selected_by(
    filter: Filter, fields: Mapping[str, Field], notes: Mapping[TaskKey, Note], search: int | None = None
) -> Selected:
    """Return the SQL of a filter. `search` is the id of the stored search for the filter's words."""
    found = Selected()
    _add_columns(found, filter)
    _add_fields(found, filter, fields)
    _add_notes(found, filter, notes)
    if search is not None:
        found.add("id IN (SELECT id FROM hits WHERE search = ?)", search)
    return found


def _add_columns(found: Selected, filter: Filter) -> None:
    if filter.task:
        spans = (f"id BETWEEN {id_of(TaskKey(task, 0))} AND {id_of(TaskKey(task + 1, 0)) - 1}" for task in filter.task)
        found.add(" OR ".join(spans))
    found.add_any(f"id & {(1 << REPEAT_BITS) - 1}", filter.repeat)
    for column in ("agent", "outcome", "failure", "tier", "server"):
        found.add_any(column, getattr(filter, column))
    for condition, bound in (
        ("reward >= ?", filter.reward_min), ("reward <= ?", filter.reward_max),
        ("steps >= ?", filter.steps_min), ("steps <= ?", filter.steps_max),
    ):  # fmt: skip
        if bound is not None:
            found.add(condition, bound)
    if filter.tool or filter.tool_failed is not None:
        calls = Selected("toolsets, json_each(counts)")
        calls.add_any("json_each.key", filter.tool)
        if filter.tool_failed is not None:
            calls.add("json_extract(json_each.value, '$[1]') > 0")
        negated = "NOT " if filter.tool_failed is False else ""
        found.add(f"toolset {negated}IN (SELECT toolsets.id {calls.clause})", *calls.values)


def _add_fields(found: Selected, filter: Filter, fields: Mapping[str, Field]) -> None:
    wanted: dict[str, list[str]] = {}
    for name, text in filter.field:
        wanted.setdefault(name, []).append(text)
    for name, texts in wanted.items():
        if name not in fields:
            found.add("0")
            continue
        field = fields[name]
        found.join(field.table)
        found.add_any(
            f"{field.table}.{field.column}", (value for text in texts for value in _values_of(text, field.kind))
        )


def _values_of(text: str, kind: str) -> Iterable[Value]:
    """Yield the stored values that a string in a query may mean: the string itself, a boolean or a number."""
    yield text
    if kind != "number" and text in ("true", "false"):
        yield int(text == "true")
    # Try `int` first, because a float has too few digits for a large integer.
    for parse in (int, float):
        with suppress(ValueError, OverflowError):
            number = fitting(parse(text))
            if math.isfinite(number):
                yield number
            return


def _add_notes(found: Selected, filter: Filter, notes: Mapping[TaskKey, Note]) -> None:
    if filter.star is not None:
        _add_noted(found, (key for key, note in notes.items() if note.star), is_wanted=filter.star)
    if filter.commented is not None:
        _add_noted(found, (key for key, note in notes.items() if note.comment), is_wanted=filter.commented)
    if filter.tag:
        _add_noted(found, (key for key, note in notes.items() if set(filter.tag) & set(note.tags)), is_wanted=True)


def _add_noted(found: Selected, keys: Iterable[TaskKey], *, is_wanted: bool) -> None:
    ids = [id_of(key) for key in keys if key.repeat < 1 << REPEAT_BITS]
    negated = "" if is_wanted else "NOT "
    found.add(f"id {negated}IN (SELECT value FROM json_each(?))", orjson.dumps(ids).decode())

"""Queries over the rollouts of one run: by key, or filtered and sorted."""

from __future__ import annotations

import sqlite3
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.discovery import NOT_READ, Problem
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index import builder, store
from nemo_gym.viewer.index.census import Census, census_of, pass_rates
from nemo_gym.viewer.index.conditions import Order, Selected, order_of, selected_by
from nemo_gym.viewer.index.entry import COMPONENTS, id_of, key_of
from nemo_gym.viewer.index.fields import Field, fields_in
from nemo_gym.viewer.index.place import Place
from nemo_gym.viewer.index.words import Cancelled, search_of
from nemo_gym.viewer.notes import Note

DEEP = 10_000
"""Pages from this row on use cached sorted ids, because sorting for each page takes 1 s per million rows."""
RESULTS_KEPT = 16
"""The number of cached results per run. The largest are sorted ids, with 8 MB per million rollouts."""
LOOK_EVERY = 1_000_000
"""The number of SQLite instructions (a few milliseconds) between checks whether the client has disconnected."""
REST = 5.0
"""The pause after a computation, as a multiple of its duration. It limits the load that a growing run causes."""
V = TypeVar("V")
COLUMNS = (
    "agent", "outcome", "reward", "failure", "tier", "server", "attempts", "steps", "tool_calls", "input_tokens",
    "output_tokens", "seconds", "is_masked", "bytes",
)  # fmt: skip
ROW = f"{', '.join(COLUMNS)}, (SELECT title FROM titles WHERE task = id >> 20)"
_PLACE = "id, file, line, offset, bytes, outcome, attempt"


class Page(NamedTuple):
    """A page of the filtered and sorted table."""

    total: int
    rows: list[JsonObject]
    """The page's rollouts, each a `RolloutRow` of api.ts."""


class Summary(NamedTuple):
    """The facts about a run that the list of runs shows. The counts of a growing run may be slightly out of date."""

    census: Census = Census()
    planned: int | None = None
    pass_at: dict[str, float] | None = None
    model: str | None = None
    """The model name in the first response."""
    indexed: Mapping[str, int] = {"bytes": 0, "of": 0}
    has: Mapping[str, bool] = dict.fromkeys(("tokens", "timeline", "components", "training", "tools"), False)


class Score(NamedTuple):
    key: TaskKey
    agent: str | None
    outcome: Outcome
    reward: float | None


def never() -> bool:
    """Return False, for work that is never cancelled."""
    return False


class Renewed(Generic[V]):
    """The latest value of a slow computation. Thread-safe: only one thread at a time computes the value."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state: object = None
        self._value: V | None = None
        self._rests_until = 0.0

    def of(self, state: object, compute: Callable[[], V]) -> V:
        """Return the value for `state`. During the pause after a computation, return the last computed value."""
        with self._lock:
            if self._value is None or (state != self._state and time.monotonic() >= self._rests_until):
                began_at = time.monotonic()
                self._value, self._state = compute(), state
                ended_at = time.monotonic()
                self._rests_until = ended_at + REST * (ended_at - began_at)
            return self._value


class RunIndex:
    """The index of a run's files. All methods are thread-safe.

    Methods that take a filter raise `DataError` if the index cannot be used, and `words.Cancelled` if `is_cancelled`
    returns True during the call.
    """

    def __init__(
        self,
        files: RunFiles,
        folder: Path,
        notes: Callable[[], Mapping[TaskKey, Note]],
        allows: Callable[[Path], bool],
    ) -> None:
        """Store the index in `folder`. A file for which `allows` returns False is not read."""
        self.allows = allows
        self.fault: str | None = None
        """The reason why indexing failed. None if it works."""
        self._has_caught_up = False
        self._files = files
        self._store = store.Store(files.results, folder)
        self._notes = notes
        self._lock = Lock()
        self._kept: OrderedDict[object, Renewed[Any]] = OrderedDict()
        self._searching = Lock()

    @property
    def path(self) -> Path:
        return self._store.path

    def index_some(self, seconds: float) -> bool:
        """Index appended lines of the files for about `seconds` seconds. Return whether more lines are left."""
        with self._store.open() as db:
            is_left = builder.index_some(db, self._paths(), time.monotonic() + seconds)
            self._has_caught_up = self._has_caught_up or not is_left
            return is_left

    def summary(self, *, is_running: bool) -> Summary:
        """Return the facts about the run that the list of runs shows.

        An incomplete last line counts as indexed, and so do new lines of a running run that was indexed to its end.
        """
        with self.reading() as db:
            progress = builder.progress_of(db, self._paths())
            indexed = progress.bytes + sum(progress.incomplete.values())
            (planned,) = db.execute("SELECT COUNT(*) FROM planned").fetchone()
            has_components = db.execute("SELECT 1 FROM fields WHERE name GLOB ?", (f"{COMPONENTS}*",)).fetchone()
            model = store.fact(db, "model")
            return Summary(
                self._census_in(db),
                int(planned) if self._files.materialized.exists() else None,
                self.kept(db, Selected(), "pass rates", lambda: pass_rates(db)),
                str(model) if model else None,
                {"bytes": progress.of if is_running and self._has_caught_up else indexed, "of": progress.of},
                {
                    "tokens": bool(store.fact(db, "has_tokens")),
                    "timeline": bool(store.fact(db, "has_timeline")),
                    "components": bool(has_components),
                    "training": bool(db.execute("SELECT 1 FROM fields WHERE name = 'policy_version'").fetchone()),
                    "tools": bool(db.execute("SELECT 1 FROM toolsets WHERE counts <> '{}'").fetchone()),
                },
            )

    def census(self) -> Census:
        """Return the counts over all rollouts. While the run grows, they may lag slightly behind the index."""
        with self.reading() as db:
            return self._census_in(db)

    def problems(self, *, is_running: bool) -> Iterator[Problem]:
        """Yield the problems of the files."""
        with self.reading() as db:
            paths = builder.paths_of(self._files)
            for file, line, message in db.execute("SELECT file, line, message FROM problems ORDER BY file, line"):
                yield Problem(file=str(paths[file]), line=line, message=message)
            if more := store.fact(db, "more_problems"):
                yield Problem(file=str(self._files.results), line=None, message=f"{more} more lines have problems.")
            incomplete = {} if is_running else builder.progress_of(db, self._paths()).incomplete
            for file, size in incomplete.items():
                message = f"the last line is incomplete ({size} bytes), so it is left out."
                yield Problem(file=str(paths[file]), line=None, message=message)
            for path in set(paths.values()) - set(self._paths().values()):
                yield Problem(file=str(path), line=None, message=NOT_READ)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open the index in a read transaction, so that all queries in the block see the same state."""
        with self._store.open() as db:
            # Keep SQLite's cache small, because most queries read a whole table once.
            db.execute("PRAGMA cache_size = -2000")
            db.execute("BEGIN")
            yield db

    def _row(self, statement: str, number: int) -> tuple[Any, ...] | None:
        """Return the first row of a query with one parameter."""
        with self._store.open() as db:
            found: tuple[Any, ...] | None = db.execute(statement, (number,)).fetchone()
            return found

    def place(self, key: TaskKey) -> Place | None:
        """Return the current record of a rollout: its score, else its last failed attempt, else its planned row."""
        found = self._row(f"SELECT {_PLACE} FROM rollouts WHERE id = ?", id_of(key))
        return self._place(found) if found else None

    def attempts(self, key: TaskKey) -> list[Place]:
        """Return the failed attempts of a rollout, in order."""
        with self._store.open() as db:
            found = db.execute(
                "SELECT line, offset, bytes, attempt FROM attempts WHERE id = ? ORDER BY attempt, offset",
                (id_of(key),),
            ).fetchall()
        path = self._files.failures
        return [Place(path, line, offset, size, key, Outcome.FAILED, attempt) for line, offset, size, attempt in found]

    def planned(self, key: TaskKey) -> Place | None:
        """Return the position of a rollout's row in the materialized file, or None if the row is not indexed."""
        found = self._row("SELECT line, offset, bytes FROM planned WHERE id = ?", id_of(key))
        if found is None:
            return None
        line, offset, size = found
        return Place(self._files.materialized, line, offset, size, key, Outcome.UNRESOLVED, 0)

    def title(self, task: int) -> str:
        """Return the first 120 characters of the last user message of a task's prompt."""
        found = self._row("SELECT title FROM titles WHERE task = ?", task)
        return str(found[0]) if found else ""

    def repeats(self, task: int) -> list[Score]:
        """Return the outcomes of a task's rollouts, by repeat."""
        return list(self.scores(Filter(task=(task,))))

    def scores(self, filter: Filter) -> Iterator[Score]:
        """Yield the outcomes of the selected rollouts, by task and repeat."""
        with self.selection(filter) as (db, selected):
            rows = db.execute(f"SELECT id, agent, outcome, reward {selected.clause} ORDER BY id", selected.values)
            for number, agent, outcome, reward in rows:
                yield Score(key_of(number), agent, Outcome(outcome), reward)

    def places(self, filter: Filter, sort: str = "task", *, is_descending: bool = False) -> Iterator[Place]:
        """Yield the current records of the selected rollouts. The arguments are those of `select`."""
        with self.selection(filter) as (db, selected):
            order = order_of(sort, fields_in(db), is_descending=is_descending)
            for found in db.execute(f"SELECT {_PLACE} {_joined(selected, order)} {order.clause}", selected.values):
                yield self._place(found)

    def select(
        self,
        filter: Filter,
        sort: str = "task",
        *,
        is_descending: bool = False,
        offset: int = 0,
        limit: int = 100,
        columns: Sequence[str] = (),
        is_cancelled: Callable[[], bool] = never,
    ) -> Page:
        """Return a page of the table, or all rows from `offset` on if `limit` is -1.

        Raise `UsageError` if `sort` is neither a `SortKey` nor a field's name.
        """
        with self.selection(filter, is_cancelled) as (db, selected):
            fields = fields_in(db)
            order = order_of(sort, fields, is_descending=is_descending)
            ids = self._ids(db, selected, order, offset, limit)
            rows = self._rows(db, ids, {name: fields[name] for name in columns if name in fields})
            return Page(self._count(db, selected), rows)

    def count(self, filter: Filter, is_cancelled: Callable[[], bool] = never) -> int:
        with self.selection(filter, is_cancelled) as (db, selected):
            return self._count(db, selected)

    def neighbours(
        self, key: TaskKey, filter: Filter, sort: str = "task", *, is_descending: bool = False
    ) -> tuple[TaskKey | None, ...]:
        """Return the rollouts before and after `key` in the filtered and sorted table."""
        with self.selection(filter) as (db, selected):
            order = order_of(sort, fields_in(db), is_descending=is_descending)
            return tuple(next_to(db, key, selected, order, is_before=is_before) for is_before in (True, False))

    @contextmanager
    def selection(
        self, filter: Filter, is_cancelled: Callable[[], bool] = never
    ) -> Iterator[tuple[sqlite3.Connection, Selected]]:
        """Open the index for queries over the selected rollouts. If the filter has words, first search for them."""
        search = None
        notes = self._notes() if filter.star is not None or filter.commented is not None or filter.tag else {}
        if filter.words:
            with self._searching, self._store.open() as db:
                search = search_of(db, self._paths(), filter, is_cancelled)
        with self.reading() as db:
            db.set_progress_handler(is_cancelled, LOOK_EVERY)
            try:
                yield db, selected_by(filter, fields_in(db), notes, search)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise Cancelled from error
                raise

    def kept(self, db: sqlite3.Connection, selected: Selected, name: object, compute: Callable[[], V]) -> V:
        """Return the cached result of `compute` for a selection. The result may be slightly older than the index."""
        cache_key = (store.fact(db, "generation"), name, selected.clause, tuple(selected.values))
        with self._lock:
            found: Renewed[V] = self._kept.setdefault(cache_key, Renewed())
            self._kept.move_to_end(cache_key)
            while len(self._kept) > RESULTS_KEPT:
                self._kept.popitem(last=False)
        return found.of(store.fact(db, "changed"), compute)

    def _census_in(self, db: sqlite3.Connection) -> Census:
        return self.kept(db, Selected(), "census", lambda: census_of(db))

    def _paths(self) -> dict[int, Path]:
        """Return the paths of the files that may be read, by file number."""
        return {file: path for file, path in builder.paths_of(self._files).items() if self.allows(path)}

    def _place(self, found: Sequence[Any]) -> Place:
        number, file, line, offset, size, outcome, attempt = found
        path = builder.paths_of(self._files)[file]
        return Place(path, line, offset, size, key_of(number), Outcome(outcome), attempt)

    def _count(self, db: sqlite3.Connection, selected: Selected) -> int:
        def count() -> int:
            return int(db.execute(f"SELECT COUNT(*) {selected.clause}", selected.values).fetchone()[0])

        return self.kept(db, selected, "count", count)

    def _ids(self, db: sqlite3.Connection, selected: Selected, order: Order, offset: int, limit: int) -> list[int]:
        if order.table and not selected.conditions:
            # Sort only the table of the field, which is much smaller than the table of rollouts. Its rows suffice for
            # most pages, because rollouts without a value come last.
            there = f"FROM {order.table} AS sorted WHERE {order.column} IS NOT NULL {order.clause}"
            ids = [number for (number,) in db.execute(f"SELECT id {there} LIMIT ? OFFSET ?", (limit, offset))]
            if len(ids) == limit:
                return ids
        if offset < DEEP or (order.is_by_task and not selected.conditions):
            statement = f"SELECT id {_joined(selected, order)} {order.clause} LIMIT ? OFFSET ?"
            return [number for (number,) in db.execute(statement, (*selected.values, limit, offset))]
        ordered = self.kept(db, selected, order, lambda: _whole_order(db, selected, order))
        return list(ordered[offset : offset + limit])

    def _rows(self, db: sqlite3.Connection, ids: list[int], fields: Mapping[str, Field]) -> list[JsonObject]:
        wanted = orjson.dumps(ids).decode()
        chosen = "WHERE id IN (SELECT value FROM json_each(?))"
        values = {number: rest for number, *rest in db.execute(f"SELECT id, {ROW} FROM rollouts {chosen}", (wanted,))}
        columns: dict[int, dict[str, object]] = {number: dict.fromkeys(fields) for number in ids}
        for name, field in fields.items():
            for number, value in db.execute(f"SELECT id, {field.column} FROM {field.table} {chosen}", (wanted,)):
                columns[number][name] = bool(value) if field.kind == "bool" and value is not None else value
        notes = self._notes()
        return [_row(key_of(number), values[number], columns[number], notes.get(key_of(number))) for number in ids]


def _joined(selected: Selected, order: Order) -> str:
    """Return a query's FROM and WHERE clauses, with the table of the field to sort by if there is one."""
    return Selected(selected.tables + order.join, selected.conditions).clause


def _whole_order(db: sqlite3.Connection, selected: Selected, order: Order) -> array[int]:
    # Do not cancel the query if this client disconnects, because other requests wait for its result.
    db.set_progress_handler(None, 0)
    statement = f"SELECT id {_joined(selected, order)} {order.clause}"
    return array("q", (number for (number,) in db.execute(statement, selected.values)))


def _row(key: TaskKey, values: list[object], fields: Mapping[str, object], note: Note | None) -> JsonObject:
    row = dict(zip((*COLUMNS, "title"), values, strict=True))
    row["is_masked"], row["title"] = bool(row["is_masked"]), row["title"] or ""
    return {
        "task": key.task, "repeat": key.repeat, **row, "star": bool(note and note.star),
        "tags": list(note.tags) if note else [], "has_comment": bool(note and note.comment), "fields": fields,
    }  # fmt: skip


def next_to(
    db: sqlite3.Connection, key: TaskKey, selected: Selected, order: Order, *, is_before: bool
) -> TaskKey | None:
    """Return the selected rollout before or after `key`, or None at either end. `key` itself need not be selected."""
    number, column = id_of(key), order.column
    found = db.execute(f"SELECT {column} FROM rollouts{order.join} WHERE id = ?", (number,)).fetchone()
    value = found[0] if found else None
    # Rollouts without a value are last in both directions, and ties are in the order of task and repeat.
    nulls, tie, ties = ("FIRST", "<", "DESC") if is_before else ("LAST", ">", "ASC")
    sign, word = (">", "ASC") if order.is_descending == is_before else ("<", "DESC")
    there = Selected(selected.tables + order.join, list(selected.conditions), list(selected.values))
    if order.is_by_task:
        there.add(f"id {sign} ?", number)
    else:
        same = f"{column} {sign} ? OR ({column} IS ? AND id {tie} ?)"
        there.add(
            f"({column} IS NULL) {tie} ? OR (({column} IS NULL) = ? AND ({same}))",
            value is None, value is None, value, value, number,
        )  # fmt: skip
    clause = f"ORDER BY {column} {word} NULLS {nulls}, id {ties}"
    found = db.execute(f"SELECT id {there.clause} {clause} LIMIT 1", there.values).fetchone()
    return key_of(found[0]) if found else None

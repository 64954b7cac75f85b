"""Store the scalar fields of rollouts in tables with eight fields each, and count each value."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import orjson

MOST_FIELDS = 400
FIELDS_PER_TABLE = 8
"""The number of fields per table. A larger number slows reading one field, and a smaller one slows writing."""
MOST_VALUES = 1000
"""The maximum number of distinct values that are counted per field. If a field has more, none are counted."""
KINDS = {bool: "bool", int: "number", float: "number", str: "text"}

Scalar = str | int | float | bool
ScalarT = TypeVar("ScalarT", bound=Scalar | None)
Fields = Mapping[str, Scalar]


class Field(NamedTuple):
    """A scalar field of the rows. `kind` is empty until a value is added."""

    id: int
    kind: str
    is_counted: bool

    @property
    def table(self) -> str:
        """The name of the table with the field's values."""
        return f"fields_{self.id // FIELDS_PER_TABLE}"

    @property
    def column(self) -> str:
        """The name of the field's column in `table`."""
        return f"v{self.id % FIELDS_PER_TABLE}"


def fields_in(db: sqlite3.Connection) -> dict[str, Field]:
    """Return the fields of an index by name, in the order of their ids."""
    found = db.execute("SELECT name, id, kind, is_counted FROM fields ORDER BY id")
    return {name: Field(number, kind, bool(is_counted)) for name, number, kind, is_counted in found}


def text_of(value: object, kind: str) -> str:
    """Return a value of a field as a filter names it."""
    if kind == "bool":
        return "true" if value else "false"
    # Keep all digits of a float, because the text is also the filter for this value.
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


class FieldTables:
    """The tables of an index's fields, inside a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._fields = fields_in(db)
        self.ignored: set[str] = set()
        """The names of fields that are not stored, because the index already has `MOST_FIELDS` fields."""

    def remove(self, ids: list[int]) -> None:
        """Remove the values of rollouts whose record is replaced."""
        if not ids:
            return
        wanted = orjson.dumps(ids).decode()
        chosen = "id IN (SELECT value FROM json_each(?))"
        for field in self._fields.values():
            if field.is_counted:
                gone = self._db.execute(
                    f"SELECT {field.column}, COUNT(*) FROM {field.table} WHERE {chosen} GROUP BY 1", (wanted,)
                ).fetchall()
                self._db.executemany(
                    f"UPDATE counts SET count = count - ?2 WHERE field = {field.id} AND value = ?1", gone
                )
        for table in sorted({field.table for field in self._fields.values()}):
            self._db.execute(f"DELETE FROM {table} WHERE {chosen}", (wanted,))

    def add(self, rollouts: Sequence[tuple[int, Fields]]) -> None:
        """Add the values of rollouts. None of these rollouts may have values in the tables yet."""
        # Use a dict because, unlike a set, it keeps the order of the fields in the rows.
        for name in dict.fromkeys(name for _, fields in rollouts for name in fields):
            if name not in self._fields:
                self._make(name)
        names = list(self._fields)
        for first in range(0, len(names), FIELDS_PER_TABLE):
            self._add_to_table(names[first : first + FIELDS_PER_TABLE], rollouts)

    def _add_to_table(self, names: Sequence[str], rollouts: Iterable[tuple[int, Fields]]) -> None:
        rows = [
            (number, *values)
            for number, fields in rollouts
            if (values := [fields.get(name) for name in names]).count(None) < len(names)
        ]
        if not rows:
            return
        marks = ", ".join("?" * (len(names) + 1))
        columns = ", ".join(self._fields[name].column for name in names)
        statement = f"INSERT INTO {self._fields[names[0]].table} (id, {columns}) VALUES ({marks})"
        try:
            self._db.executemany(statement, rows)
        except OverflowError:
            # SQLite cannot store integers beyond 64 bits, so these become floats.
            rows = [(row[0], *map(fitting, row[1:])) for row in rows]
            self._db.executemany("INSERT OR REPLACE" + statement.removeprefix("INSERT"), rows)
        for place, name in enumerate(names, start=1):
            self._note(name, [value for row in rows if (value := row[place]) is not None])

    def _note(self, name: str, values: Sequence[Scalar]) -> None:
        """Update the kind of a field after values were added, and count the values."""
        field = self._fields[name]
        kinds = {KINDS[kind] for kind in set(map(type, values))} | ({field.kind} if field.kind else set())
        kind = "text" if len(kinds) > 1 else "".join(kinds)
        is_counted = field.is_counted and self._count(field.id, Counter(values))
        if (kind, is_counted) != field[1:]:
            self._fields[name] = Field(field.id, kind, is_counted)
            self._db.execute("UPDATE fields SET kind = ?, is_counted = ? WHERE id = ?", (kind, is_counted, field.id))

    def _count(self, field: int, counts: Counter[Scalar]) -> bool:
        """Count values. If a field has too many distinct values, delete its counts and return False."""
        if len(counts) <= MOST_VALUES:
            self._db.executemany(
                "INSERT INTO counts VALUES (?, ?, ?)"
                " ON CONFLICT (field, value) DO UPDATE SET count = count + excluded.count",
                [(field, value, count) for value, count in counts.items()],
            )
            (known,) = self._db.execute("SELECT COUNT(*) FROM counts WHERE field = ?", (field,)).fetchone()
            if known <= MOST_VALUES:
                return True
        self._db.execute("DELETE FROM counts WHERE field = ?", (field,))
        return False

    def _make(self, name: str) -> None:
        number = len(self._fields)
        if number >= MOST_FIELDS:
            self.ignored.add(name)
            return
        field = self._fields[name] = Field(number, "", is_counted=True)
        self._db.execute("INSERT INTO fields VALUES (?, ?, '', 1)", (number, name))
        if number % FIELDS_PER_TABLE == 0:
            columns = ", ".join(f"v{place}" for place in range(FIELDS_PER_TABLE))
            self._db.execute(f"CREATE TABLE {field.table} (id INTEGER PRIMARY KEY, {columns})")


def fitting(value: ScalarT) -> ScalarT | float:
    """Return a value that SQLite can store. An integer beyond 64 bits becomes a float."""
    return float(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value

"""Replace a database's rows by other rows with valid keys, the same types and similar values."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from random import Random
from typing import NamedTuple

Value = str | int | float | bytes | None
Row = tuple[Value, ...]

CONSTANT_SHARE, NEW_SHARE = 0.4, 0.3
"""The probabilities that a value is a constant of the reference query or, failing that, a new number in range."""
MOST_COMPARED_ROWS = 2_000
"""Maximum number of rows per table that are searched for regularities between columns."""
MOST_ROWS = 500
"""Maximum number of new rows per table."""
LEAST_ORDERED_ROWS = 4
"""Minimum number of rows for a regularity to count. In fewer rows, a regularity may occur by chance."""
WORDS = ("amber", "birch", "cedar", "delta", "ember")
"""Texts that are inserted into tables without rows."""

_COMPARED = re.compile(
    r"(?P<column>\w+)[\"`\]]?\s*(?P<operator><=|>=|<>|!=|==|=|<|>|\bbetween\b)\s*(?P<value>-?\d+(?:\.\d+)?|'(?:[^']|'')*')"
    r"(?:\s+and\s+(?P<upper>-?\d+(?:\.\d+)?|'(?:[^']|'')*'))?",
    re.IGNORECASE,
)
_TESTED_FOR_NULL = re.compile(r"(\w+)[\"`\]]?\s+is\s+(?:not\s+)?null\b", re.IGNORECASE)
_EQUALITY = ("=", "==", "<>", "!=")


@dataclass(frozen=True)
class _Reference:
    """A foreign key. The names of the parent table and its columns are in lower case."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]


class _Range(NamedTuple):
    """The range of a column's numbers."""

    least: int | float
    most: int | float
    are_whole: bool


@dataclass
class _Table:
    """A table and its rows. Columns that SQLite computes are left out."""

    name: str
    types: dict[str, str]
    key: list[str]
    references: list[_Reference]
    rows: list[Row]

    @cached_property
    def columns(self) -> list[str]:
        return list(self.types)

    @cached_property
    def values(self) -> dict[str, list[Value]]:
        """The values of each column, except NULL."""
        return {
            column: [row[place] for row in self.rows if row[place] is not None]
            for place, column in enumerate(self.columns)
        }

    @cached_property
    def unique(self) -> set[str]:
        """The columns in which no value occurs twice, by declaration or by chance."""
        return {column for column, values in self.values.items() if len(set(values)) == len(values)}

    @cached_property
    def ranges(self) -> dict[str, _Range]:
        """The ranges of the columns with many different numbers."""
        found = {}
        for column, values in self.values.items():
            numbers = [value for value in values if isinstance(value, int | float)]
            if LEAST_ORDERED_ROWS <= len(values) == len(numbers) and len(set(numbers)) > len(numbers) / 2:
                found[column] = _Range(min(numbers), max(numbers), all(isinstance(each, int) for each in numbers))
        return found


def vary(connection: sqlite3.Connection, reference: str, chance: Random) -> None:
    """Replace the rows of all tables, so that a query that is correct only for the old rows has another result.

    Keys stay unique, and references stay valid. A column without NULL does not get NULL, and unique values stay
    unique. The new values come from the column's rows and range, or from constants in the reference query.
    """
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {_quoted(trigger)}")
    constants = _constants(reference)
    made: dict[str, _Table] = {}
    for table in _parents_first(_tables(connection)):
        rows = list(_NewRows(table, made, constants, chance))
        marks = ", ".join("?" * len(table.columns))
        names = ", ".join(map(_quoted, table.columns))
        connection.execute(f"DELETE FROM {_quoted(table.name)}")
        connection.executemany(f"INSERT OR IGNORE INTO {_quoted(table.name)} ({names}) VALUES ({marks})", rows)
        made[table.name.casefold()] = _read(connection, table.name)


def reorder(connection: sqlite3.Connection, chance: Random | None) -> None:
    """Store the rows of all tables in random order, or in reverse order if `chance` is None.

    Drop primary keys and indexes, because they would sort the rows again.
    """
    for name in _names(connection):
        rows = connection.execute(f"SELECT * FROM {_quoted(name)}").fetchall()
        about = connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
        collations = _collations(connection, name, [column for _, column, *_ in about])
        columns = ", ".join(
            f"{_quoted(column)} {kind} COLLATE {collation}"
            for (_, column, kind, *_), collation in zip(about, collations, strict=True)
        )
        connection.execute(f"DROP TABLE {_quoted(name)}")
        connection.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
        if chance is None:
            rows.reverse()
        else:
            chance.shuffle(rows)
        connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({', '.join('?' * len(about))})", rows)


def _collations(connection: sqlite3.Connection, name: str, columns: Sequence[str]) -> list[str]:
    """Create an index of a table's columns, because SQLite reports collations only for indexes, and return them."""
    index = _quoted(f"{name} collations")
    connection.execute(f"CREATE INDEX {index} ON {_quoted(name)} ({', '.join(map(_quoted, columns))})")
    listed = connection.execute(f"PRAGMA index_xinfo({index})").fetchall()
    return [str(collation) for _, _, _, _, collation, is_key in listed if is_key]


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _names(connection: sqlite3.Connection) -> list[str]:
    sql = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
    )
    return [name for (name,) in connection.execute(sql).fetchall()]


def _tables(connection: sqlite3.Connection) -> list[_Table]:
    tables = [_read(connection, name) for name in _names(connection)]
    for table in tables:
        declared = {column for reference in table.references for column in reference.columns}
        for column in table.columns:
            if column not in declared:
                table.references += _undeclared(column, table, tables)
    return tables


def _read(connection: sqlite3.Connection, name: str) -> _Table:
    about = connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
    stored = [each for each in about if each[6] == 0]
    by_number: dict[int, list[tuple[str, str, str | None]]] = {}
    for number, _, parent, column, parent_column, *_ in connection.execute(
        f"PRAGMA foreign_key_list({_quoted(name)})"
    ).fetchall():
        by_number.setdefault(number, []).append((column, parent, parent_column))
    spelled = {each[1].casefold(): each[1] for each in stored}
    references = []
    for pairs in by_number.values():
        parent = pairs[0][1]
        # A foreign key without parent columns refers to the parent's primary key.
        targets = [target for _, _, target in pairs if target] or _key_of(connection, parent)
        columns = [spelled[column.casefold()] for column, _, _ in pairs if column.casefold() in spelled]
        if len(targets) == len(columns) == len(pairs):
            references.append(_Reference(tuple(columns), parent.casefold(), tuple(map(str.casefold, targets))))
    listed = ", ".join(_quoted(each[1]) for each in stored)
    rows = connection.execute(f"SELECT {listed} FROM {_quoted(name)}").fetchall()
    types = {each[1]: each[2].upper() for each in stored}
    return _Table(name, types, [each[1] for each in stored if each[5]], references, rows)


def _key_of(connection: sqlite3.Connection, name: str) -> list[str]:
    return [each[1] for each in connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall() if each[5]]


def _undeclared(column: str, table: _Table, tables: Sequence[_Table]) -> list[_Reference]:
    """Return a list with the undeclared reference that a column's name and values suggest, if there is one."""
    values, named = set(table.values[column]), column.casefold()
    for parent in tables:
        if parent is table or len(parent.key) != 1 or not values or not values <= set(parent.values[parent.key[0]]):
            continue
        if any(reference.parent == table.name.casefold() for reference in parent.references):
            continue
        key, plural = parent.key[0].casefold(), parent.name.casefold()
        singular = plural.rstrip("s")
        is_its_name = column not in table.key and named in (plural, singular, f"{singular}_id", f"{singular}id")
        if is_its_name or (named == key and key != "id"):
            return [_Reference((column,), plural, (key,))]
    return []


def _parents_first(tables: Sequence[_Table]) -> list[_Table]:
    by_name = {table.name.casefold(): table for table in tables}
    ordered: dict[str, _Table] = {}
    under_way: set[str] = set()

    def visit(name: str) -> None:
        if name not in by_name or name in ordered or name in under_way:
            return
        under_way.add(name)
        for reference in by_name[name].references:
            visit(reference.parent)
        ordered[name] = by_name[name]

    for name in by_name:
        visit(name)
    return list(ordered.values())


def _constants(reference: str) -> dict[str, list[Value]]:
    """Return the constants that the query compares each column with. For operators like `<`, add n - 1 and n + 1."""
    found: dict[str, list[Value]] = {}
    for match in _COMPARED.finditer(reference):
        values = found.setdefault(match["column"].casefold(), [])
        for text in filter(None, (match["value"], match["upper"])):
            if text.startswith("'"):
                values.append(text[1:-1].replace("''", "'"))
                continue
            number = float(text) if "." in text else int(text)
            values += [number] if match["operator"] in _EQUALITY else [number, number - 1, number, number + 1]
    for match in _TESTED_FOR_NULL.finditer(reference):
        found.setdefault(match[1].casefold(), []).append(None)
    return found


class _NewRows:
    """The new rows of a table. The table's parents must already have new rows."""

    def __init__(
        self, table: _Table, made: dict[str, _Table], constants: dict[str, list[Value]], chance: Random
    ) -> None:
        self._table = table
        self._made = made
        self._constants = constants
        self._chance = chance
        self._targets = {reference: self._targets_of(reference) for reference in table.references}

    def __iter__(self) -> Iterator[Row]:
        table, chance = self._table, self._chance
        old = len(table.rows)
        size = chance.randint(max(1, old // 2), old + old // 2 + 1) if old else chance.randint(3, 8)
        pools = {column: self._unique(column) for column in table.columns if self._must_be_unique(column)}
        size = min([size, MOST_ROWS, *map(len, pools.values())])
        unique = {column: sorted(chance.sample(pool, size), key=_sort_key) for column, pool in pools.items()}
        for column, values in unique.items():
            if [column] != table.key:
                chance.shuffle(values)
        groups = self._groups([column for column in table.columns if column not in unique])
        for number in range(size):
            row = {column: values[number] for column, values in unique.items()}
            for group in groups:
                row |= self._filled(group)
            if all([self._refer(row, reference) for reference in table.references]):
                for reference in filter(self._is_own, table.references):
                    self._targets[reference].append(self._own(row, reference))
                yield tuple(row[column] for column in table.columns)

    def _must_be_unique(self, column: str) -> bool:
        if any(column in reference.columns for reference in self._table.references):
            return False
        if len(self._table.rows) == 1:
            return [column] == self._table.key
        is_full = len(self._table.values[column]) == len(self._table.rows) > 0
        return is_full and column in self._table.unique

    def _unique(self, column: str) -> list[Value]:
        """Return distinct values for a column: old values, the query's constants and, for integers, new numbers."""
        own = self._table.values[column]
        values = sorted({*own, *self._compared_with(column)} - {None}, key=_sort_key)
        numbers = [value for value in values if type(value) is int]
        if not numbers or len(numbers) < len(values):
            return values
        wanted = len(values) // 2 + 1
        new: Sequence[int] = range(max(numbers) + 1, max(numbers) + 1 + wanted)
        if [column] != self._table.key and max(numbers) - min(numbers) >= wanted:
            new = self._chance.sample(range(min(numbers), max(numbers) + 1), wanted)
        return sorted({*numbers, *new})

    def _groups(self, columns: list[str]) -> list[list[str]]:
        """Group the columns. Columns that depend on each other are in the same group."""
        group_of = {column: [column] for column in columns}
        for one, other in permutations(columns, 2):
            if group_of[one] is not group_of[other] and self._depend(one, other):
                merged = group_of[one] + group_of[other]
                group_of |= dict.fromkeys(merged, merged)
        return list({id(group): group for group in group_of.values()}.values())

    def _depend(self, one: str, other: str) -> bool:
        """Return whether the first column determines the second one, or is never greater than the second one."""
        first, second = (self._table.columns.index(column) for column in (one, other))
        pairs = [(row[first], row[second]) for row in self._table.rows[:MOST_COMPARED_ROWS]]
        pairs = [pair for pair in pairs if pair[0] is not None and pair[1] is not None]
        seen: dict[Value, set[Value]] = {}
        counts: dict[Value, int] = {}
        for left, right in pairs:
            seen.setdefault(left, set()).add(right)
            counts[left] = counts.get(left, 0) + 1
        repeated = [left for left, count in counts.items() if count > 1]
        differ = len({right for _, right in pairs}) > 1
        if len(repeated) > 1 and differ and all(len(rights) == 1 for rights in seen.values()):
            return True
        return len(pairs) >= LEAST_ORDERED_ROWS and _is_never_above(pairs)

    def _filled(self, group: list[str]) -> dict[str, Value]:
        if len(group) == 1:
            return {group[0]: self._value(group[0])}
        template = dict(zip(self._table.columns, self._chance.choice(self._table.rows), strict=True))
        return {column: template[column] for column in group}

    def _value(self, column: str) -> Value:
        table, chance = self._table, self._chance
        if not table.rows:
            return self._invented(column)
        values = table.values[column]
        if not values or chance.random() < 1 - len(values) / len(table.rows):
            return None
        constants = self._compared_with(column)
        if constants and chance.random() < CONSTANT_SHARE:
            return chance.choice(constants)
        numbers = table.ranges.get(column)
        if numbers is None or chance.random() >= NEW_SHARE:
            return chance.choice(values)
        if numbers.are_whole:
            return chance.randint(int(numbers.least), int(numbers.most))
        return round(chance.uniform(numbers.least, numbers.most), 2)

    def _compared_with(self, column: str) -> list[Value]:
        """Return the constants that the query compares a column with, if they have the column's type."""
        kinds = {isinstance(value, int | float) for value in self._table.values[column][:MOST_COMPARED_ROWS]}
        found = self._constants.get(column.casefold(), [])
        return [value for value in found if value is None or kinds == {isinstance(value, int | float)}]

    def _invented(self, column: str) -> Value:
        """Return a value for a column of a table without rows."""
        kind, constants = self._table.types[column], self._constants.get(column.casefold())
        if constants and self._chance.random() < CONSTANT_SHARE:
            return self._chance.choice(constants)
        if "INT" in kind:
            return self._chance.randint(1, 20)
        if any(each in kind for each in ("REAL", "FLOA", "DOUB", "NUM", "DEC")):
            return self._chance.randint(10, 200) / 10
        if "DATE" in kind or "TIME" in kind:
            return (
                f"20{self._chance.randint(18, 25)}-{self._chance.randint(1, 12):02}-{self._chance.randint(1, 28):02}"
            )
        return self._chance.choice(WORDS)

    def _refer(self, row: dict[str, Value], reference: _Reference) -> bool:
        """Set the columns of a reference to the values of a parent row. Return False if no parent row is left."""
        current = tuple(row[column] for column in reference.columns)
        if not self._is_known(reference) or (None in current and self._table.rows):
            return True
        targets = self._targets[reference]
        if not targets and self._is_own(reference):
            # In the first row, set the reference to NULL if the old rows have NULLs in its columns. Otherwise, let the
            # row refer to itself.
            is_nullable = any(len(self._table.values[each]) < len(self._table.rows) for each in reference.columns)
            targets = [(None,) * len(current) if is_nullable else self._own(row, reference)]
        if not targets:
            return False
        # Keep a value of the old rows if it is still valid, because other columns of the row may depend on it.
        place = targets.index(current) if current in targets else self._chance.randrange(len(targets))
        row |= zip(reference.columns, targets[place], strict=True)
        if self._table.rows and len(current) == 1 and reference.columns[0] in self._table.unique:
            del targets[place]
        return True

    def _is_own(self, reference: _Reference) -> bool:
        return reference.parent == self._table.name.casefold()

    def _is_known(self, reference: _Reference) -> bool:
        """Return whether the parent already has its new rows, or is this table itself.

        This is False for one of two tables that refer to each other, or if the parent or its columns do not exist.
        """
        parent = self._table if self._is_own(reference) else self._made.get(reference.parent)
        return parent is not None and {*reference.parent_columns} <= {*map(str.casefold, parent.columns)}

    def _own(self, row: dict[str, Value], reference: _Reference) -> tuple[Value, ...]:
        by_name = {column.casefold(): value for column, value in row.items()}
        return tuple(by_name[column] for column in reference.parent_columns)

    def _targets_of(self, reference: _Reference) -> list[tuple[Value, ...]]:
        """Return the values that a foreign key may have, from the parent's new rows.

        Return an empty list if the parent does not have new rows yet. If the parent is the table itself, the caller
        adds the values of each new row.
        """
        if self._is_own(reference) or not self._is_known(reference):
            return []
        parent = self._made[reference.parent]
        places = [[*map(str.casefold, parent.columns)].index(column) for column in reference.parent_columns]
        return [tuple(row[place] for place in places) for row in parent.rows]


def _is_never_above(pairs: Sequence[tuple[Value, Value]]) -> bool:
    """Return whether each left value is at most the right value of its pair, and the two ranges overlap."""
    for kinds in ((int, float), (str,)):
        if all(type(left) in kinds and type(right) in kinds for left, right in pairs):
            lefts, rights = [left for left, _ in pairs], [right for _, right in pairs]
            return min(rights) < max(lefts) and all(left <= right for left, right in pairs)  # type: ignore[type-var, operator]
    return False


def _sort_key(value: Value) -> tuple[str, str | int | float | bytes]:
    kind = "number" if isinstance(value, int | float) else type(value).__name__
    return kind, value if value is not None else ""

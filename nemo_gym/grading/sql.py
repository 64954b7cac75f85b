"""Run a query that nobody trusts on a small SQLite database, and compare what two queries find."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from nemo_gym.errors import EnvironmentFailed
from nemo_gym.grading.code import last_code_block
from nemo_gym.grading.workers import WorkerCrashed, WorkerFailed, WorkerPool, WorkerTimedOut

STEPS_BETWEEN_LOOKS = 10_000
VALUE_BYTES = 1_000_000
"""The longest text or blob that SQLite will make."""
HEAP_BYTES = 256 * 2**20
WORKER_BYTES = 2**30
SIGNIFICANT_DIGITS = 9
LARGEST_EXACT_FLOAT = 2**53

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REACHING_OUT = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_VTABLE}
_NO_FUNCTIONS = {"load_extension", "fts3_tokenizer"}
# What is never closed goes on to the end: else each `[` would be looked for its `]` in all that follows.
_QUOTED = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*(?:\]|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
_UNREADABLE = re.compile(r"syntax error|unrecognized token|no such function|wrong number of arguments")
_BEGINS = re.compile(r"\s*+(?:--[^\n]*+\s*+|/\*.*?\*/\s*+)*+(?:select|with|values)\b", re.IGNORECASE | re.DOTALL)
_ORDER_OR_BRACKET = re.compile(r"[()]|\border\s+by\b", re.IGNORECASE)

Value = str | int | float | bytes | None
Row = tuple[Value, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class SqlLimits:
    """What one query may cost: steps of SQLite's machine (some 50 million a second), and the size of its result."""

    steps: int = 20_000_000
    rows: int = 10_000
    result_bytes: int = 10_000_000
    """Of its texts and blobs together."""
    deadline_s: float = 5.0


class QueryFailed(ValueError):
    """A query, or the script that makes its database, could not be run; the message is SQLite's or names the limit."""


class QueryUnreadable(QueryFailed):
    """SQLite does not know the words of a query: it is wrong, or written in another dialect."""


class DatabaseFailed(QueryFailed):
    """The script that makes the database is at fault."""


class QueryResult(NamedTuple):
    """What a query found, and the tables that it looked at."""

    columns: list[str]
    rows: list[Row]
    tables: frozenset[str]


class SqlRunner:
    """Runs queries in `size` processes that can be given up; each builds its database afresh, in memory.

    A query may only read. Of a query that costs more than the limits `QueryFailed` says so, and no other suffers.
    Where no process can be had for it, that is no query's fault: `EnvironmentFailed`.
    """

    def __init__(self, size: int, limits: SqlLimits | None = None) -> None:
        self.limits = limits or SqlLimits()
        self._pool = WorkerPool(size, self.limits.deadline_s, memory_limit_bytes=WORKER_BYTES)

    async def query(self, database: str, sql: str) -> QueryResult:
        """What a query finds in the database that a script makes. Raises `QueryFailed`."""
        return await self._run(run_query, database, sql, self.limits)

    async def finds_the_same(self, database: str, sql: str, expected: QueryResult, *, in_order: bool) -> bool:
        """Whether a query finds what another one did. Raises `QueryFailed`."""
        return await self._run(_finds_the_same, database, sql, self.limits, expected, in_order)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return await self._pool.run(function, *arguments)
        except WorkerTimedOut as error:
            raise QueryFailed(f"not done after {self.limits.deadline_s:g} s") from error
        except WorkerCrashed as error:
            raise QueryFailed(f"the process that ran it ended: {error}") from error
        except WorkerFailed as error:
            raise EnvironmentFailed(f"no query could be run, whatever it was: {error}") from error


def run_query(database: str, sql: str, limits: SqlLimits) -> QueryResult:
    """What a query finds in the database that a script makes. It blocks; raises `QueryFailed`."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        connection.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        _make(connection, database, limits)
        return _read(connection, sql, limits)
    finally:
        connection.close()


def _make(connection: sqlite3.Connection, script: str, limits: SqlLimits) -> None:
    def allow(action: int, *_: str | None) -> int:
        return sqlite3.SQLITE_DENY if action in _REACHING_OUT else sqlite3.SQLITE_OK

    connection.set_authorizer(allow)
    _bound(connection, limits)
    try:
        connection.executescript(script)
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
        raise DatabaseFailed(f"the script that makes the database: {_told(error)}") from error


def _read(connection: sqlite3.Connection, sql: str, limits: SqlLimits) -> QueryResult:
    tables: set[str] = set()

    def allow(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first:
            tables.add(first.casefold())
        is_harmless = action != sqlite3.SQLITE_FUNCTION or (second or "").casefold() not in _NO_FUNCTIONS
        return sqlite3.SQLITE_OK if action in _READING and is_harmless else sqlite3.SQLITE_DENY

    connection.set_authorizer(allow)
    _bound(connection, limits)
    try:
        cursor = connection.execute(sql)
        rows = _taken(cursor, limits)
    except QueryFailed:
        raise
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
        kind = QueryUnreadable if _UNREADABLE.search(str(error)) else QueryFailed
        raise kind(_told(error)) from error
    if cursor.description is None:
        raise QueryFailed("it is no query")
    return QueryResult([column[0] for column in cursor.description], rows, frozenset(tables))


def _taken(cursor: Iterable[Row], limits: SqlLimits) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) > limits.rows:
            raise QueryFailed(f"more than {limits.rows} rows")
        if size > limits.result_bytes:
            raise QueryFailed(f"more than {limits.result_bytes} bytes")
    return rows


def _bound(connection: sqlite3.Connection, limits: SqlLimits) -> None:
    # Steps and not seconds: a verdict must not depend on how busy the machine is.
    left = max(limits.steps // STEPS_BETWEEN_LOOKS, 1)

    def is_over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(is_over, STEPS_BETWEEN_LOOKS)


def _told(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "too much memory"
    return "too many steps" if str(error) == "interrupted" else str(error)


def _finds_the_same(database: str, sql: str, limits: SqlLimits, expected: QueryResult, in_order: bool) -> bool:
    return same_results(run_query(database, sql, limits), expected, in_order=in_order)


def same_results(found: QueryResult, expected: QueryResult, *, in_order: bool) -> bool:
    """Whether two results have the same rows, column for column; names of columns do not matter.

    Numbers are equal to nine digits, and exactly in a column that holds whole ones alone. Where nothing was expected,
    a query must at least have looked at the same tables, for as many columns.
    """
    if len(found.columns) != len(expected.columns) or len(found.rows) != len(expected.rows):
        return False
    if not expected.rows:
        return found.tables == expected.tables
    are_whole = [_are_whole(column) for column in zip(*found.rows, *expected.rows, strict=True)]
    ours, theirs = ([_comparable(row, are_whole) for row in result.rows] for result in (found, expected))
    return ours == theirs if in_order else Counter(ours) == Counter(theirs)


def _are_whole(values: Iterable[Value]) -> bool:
    """Whether all numbers of a column are whole; 2.0 is, as long as it can be told from its neighbours."""
    numbers = (value for value in values if isinstance(value, float))
    return all(number.is_integer() and abs(number) < LARGEST_EXACT_FLOAT for number in numbers)


def _comparable(row: Sequence[Value], are_whole: Sequence[bool]) -> Hashable:
    return tuple(map(_rounded, row, are_whole))


def _rounded(value: Value, is_whole: bool) -> Value | tuple[str]:
    if not isinstance(value, int | float):
        return value
    # Whole numbers may be long keys: those stay exact.
    return int(value) if is_whole else (f"{float(value) + 0.0:.{SIGNIFICANT_DIGITS}g}",)


def is_ordered(sql: str) -> bool:
    """Whether a query orders its result: `ORDER BY` outside of brackets, texts and comments."""
    depth = 0
    for found in _ORDER_OR_BRACKET.finditer(_QUOTED.sub(" ", sql)):
        if found[0] in "()":
            depth += 1 if found[0] == "(" else -1
        elif depth == 0:
            return True
    return False


def last_sql(text: str) -> str | None:
    """The query in a model's answer: its last fenced block, or all of it where it is nothing but a query."""
    block = last_code_block(text)
    if block is not None:
        return block.strip()
    return text.strip() if _BEGINS.match(text) else None


def as_table(result: QueryResult, *, rows: int = 50, width: int = 100) -> str:
    """A result for a model to read: a line per row, cells cut to `width` characters, at most so many rows."""
    lines = [" | ".join(_cell(name, width) for name in result.columns)]
    lines += [" | ".join(_cell(value, width) for value in row) for row in result.rows[:rows]]
    left = len(result.rows) - rows
    return "\n".join([*lines, *([f"({left} more rows)"] if left > 0 else []), f"({len(result.rows)} rows in all)"])


def _cell(value: Value, width: int) -> str:
    text = "NULL" if value is None else value.hex() if isinstance(value, bytes) else str(value).replace("\n", " ")
    return text if len(text) <= width else f"{text[:width]}…"

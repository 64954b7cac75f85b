"""Run untrusted queries on an SQLite database, and compare their results."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from nemo_gym import EnvironmentFailed
from nemo_gym.grading import WorkerCrashed, WorkerFailed, WorkerPool, WorkerTimedOut, last_code_block
from resources_servers.text_to_sql.orders import break_ties, is_ordered
from resources_servers.text_to_sql.variants import reorder, vary

STEPS_BETWEEN_LOOKS = 10_000
VALUE_BYTES = 1_000_000
"""Maximum length of a text or blob that SQLite may create."""
HEAP_BYTES = 256 * 2**20
WORKER_BYTES = 2**30
SIGNIFICANT_DIGITS = 9
VARIANTS = 12
"""The number of additional databases, with other rows, on which the answer is compared with the reference."""
MOST_DRAWS = 3 * VARIANTS
"""Maximum number of databases with other rows that are made, because some of them do not determine the result."""
VARIANT_QUERIES = 7
"""The number of queries on each additional database: five of the reference and two of the answer."""
ORDER_QUERIES = 3
"""The number of queries to compare a result in order: the answer, and two forms of the reference without ties."""
MAKING_S = 30.0
"""The time limit for making an additional database, in addition to its queries. Wide tables take several seconds."""
LARGEST_EXACT_FLOAT = 2**53

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REACHING_OUT = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_VTABLE}
_NO_FUNCTIONS = {"load_extension", "fts3_tokenizer"}
_UNREADABLE = re.compile(r"syntax error|unrecognized token|no such function|wrong number of arguments")
_BEGINS = re.compile(r"\s*+(?:--[^\n]*+\s*+|/\*.*?\*/\s*+)*+(?:select|with|values)\b", re.IGNORECASE | re.DOTALL)
_EMPTY_STATEMENTS = re.compile(r"(?<![;\s])(?:;(?:\s++|--[^\n]*+(?:\n|\Z)|/\*.*?\*/)*+)++\Z", re.DOTALL)
"""Semicolons at the end. SQLite rejects a second statement, even if it is empty."""

Database = str | Path
"""A script that creates a database in memory, or an SQLite file."""
Value = str | int | float | bytes | None
Row = tuple[Value, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class SqlLimits:
    """The limits of one query: steps of SQLite's virtual machine (about 50 million a second) and the result's size."""

    steps: int = 20_000_000
    rows: int = 10_000
    result_bytes: int = 10_000_000
    """Maximum total size of the texts and blobs in the result."""
    deadline_s: float = 5.0


class QueryFailed(ValueError):
    """An error for a query or database script that failed. The message is SQLite's message or names the limit."""


class QueryUnreadable(QueryFailed):
    """An error for a query that SQLite cannot parse, because it is invalid or in another dialect."""


class DatabaseFailed(QueryFailed):
    """An error for a database script that could not be run, or for a file that is not a database."""


class QueryResult(NamedTuple):
    """The result of a query, and the tables that it read."""

    columns: list[str]
    rows: list[Row]
    tables: frozenset[str]


class _Pair(NamedTuple):
    """A query, and the reference whose result the query must have."""

    sql: str
    reference: str


class SqlRunner:
    """A runner of read-only queries in `size` worker processes. Each query gets a new connection.

    A query that exceeds a limit raises `QueryFailed` and does not affect other queries. If no worker process can
    start, queries raise `EnvironmentFailed`.
    """

    def __init__(self, size: int, limits: SqlLimits | None = None) -> None:
        self.limits = limits or SqlLimits()
        self._pool = WorkerPool(size, self.limits.deadline_s, memory_limit_bytes=WORKER_BYTES)

    async def query(self, database: Database, sql: str) -> QueryResult:
        """Run a query on a database. Raises `QueryFailed` if the query fails or exceeds a limit."""
        return await self._run(run_query, database, sql, self.limits)

    async def finds_the_same(self, database: Database, sql: str, reference: str, expected: QueryResult) -> bool:
        """Return whether a query has the reference's result `expected`, in the order that the reference determines.

        Raises `QueryFailed` if the query fails.
        """
        in_order = is_ordered(reference)
        is_same = await self._run(_finds_the_same, database, sql, self.limits, expected, in_order)
        if is_same is not None:
            return is_same
        deadline_s = ORDER_QUERIES * self.limits.deadline_s
        pair = _Pair(sql, reference)
        return await self._run(_differs_in_ties_only, database, pair, self.limits, expected, deadline_s=deadline_s)

    async def agrees_elsewhere(self, script: str, sql: str, reference: str) -> bool:
        """Return whether a query has the same results as the reference on databases with other rows.

        Raises `QueryFailed` if the query fails on one of these databases.
        """
        pair = _Pair(sql, reference)
        deadline_s = MAKING_S + VARIANT_QUERIES * self.limits.deadline_s
        agreed = 0
        for number in range(MOST_DRAWS):
            agrees = await self._run(_agrees_on_variant, script, pair, self.limits, number, deadline_s=deadline_s)
            if agrees is False:
                return False
            agreed += agrees is True
            # If no database counts, none of the others probably would.
            if agreed == VARIANTS or (number + 1 == VARIANTS and not agreed):
                break
        return True

    def close(self) -> None:
        self._pool.close()

    async def _run(self, function: Callable[..., T], *arguments: Any, deadline_s: float | None = None) -> T:
        limit_s = self.limits.deadline_s if deadline_s is None else deadline_s
        try:
            return await self._pool.run(function, *arguments, deadline_s=limit_s)
        except WorkerTimedOut as error:
            raise QueryFailed(f"the query did not finish within {limit_s:g} s") from error
        except WorkerCrashed as error:
            raise QueryFailed(f"the worker process of the query ended: {error}") from error
        except WorkerFailed as error:
            raise EnvironmentFailed(f"no worker could run the query: {error}") from error


def run_query(database: Database, sql: str, limits: SqlLimits) -> QueryResult:
    """Run a query on a database, and block until the query ends. Raises `QueryFailed` if the query fails."""
    if isinstance(database, Path):
        with closing(_opened_file(database)) as connection:
            return _read(connection, sql, limits)
    with closing(_opened()) as connection:
        _make(connection, database, limits)
        return _read(connection, sql, limits)


def _opened_file(path: Path) -> sqlite3.Connection:
    try:
        # Open the file as immutable, because SQLite then works without locks and journals, even in a read-only folder.
        connection = _opened(f"{path.absolute().as_uri()}?mode=ro&immutable=1")
        # Read something, because opening alone does not detect a file that is not a database.
        connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise DatabaseFailed(f"{path}: {error}") from error
    return connection


def _opened(database: str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(database, uri=True, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    connection.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}")
    # Keep temporary data in memory, because a large sort would otherwise fill the disk with temporary files.
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    return connection


def _make(connection: sqlite3.Connection, script: str, limits: SqlLimits) -> None:
    def allow(action: int, *_: str | None) -> int:
        return sqlite3.SQLITE_DENY if action in _REACHING_OUT else sqlite3.SQLITE_OK

    connection.set_authorizer(allow)
    _bound(connection, limits)
    try:
        connection.executescript(script)
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
        raise DatabaseFailed(f"the script that creates the database: {_message_of(error)}") from error


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
        cursor = connection.execute(_EMPTY_STATEMENTS.sub("", sql))
        rows = _taken(cursor, limits)
    except QueryFailed:
        raise
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
        kind = QueryUnreadable if _UNREADABLE.search(str(error)) else QueryFailed
        raise kind(_message_of(error)) from error
    if cursor.description is None:
        raise QueryFailed("the statement does not return a result")
    return QueryResult([column[0] for column in cursor.description], rows, frozenset(tables))


def _taken(cursor: Iterable[Row], limits: SqlLimits) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) > limits.rows:
            raise QueryFailed(f"the result has more than {limits.rows} rows")
        if size > limits.result_bytes:
            raise QueryFailed(f"the result has more than {limits.result_bytes} bytes")
    return rows


def _bound(connection: sqlite3.Connection, limits: SqlLimits) -> None:
    # Limit steps and not seconds, because a verdict must not depend on the load of the machine.
    left = max(limits.steps // STEPS_BETWEEN_LOOKS, 1)

    def is_over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(is_over, STEPS_BETWEEN_LOOKS)


def _message_of(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "too much memory"
    return "too many steps" if str(error) == "interrupted" else str(error)


def _finds_the_same(
    database: Database, sql: str, limits: SqlLimits, expected: QueryResult, in_order: bool
) -> bool | None:
    """Return whether a query has the expected result. Return None if only the order of its rows differs."""
    found = run_query(database, sql, limits)
    if not same_results(found, expected):
        return False
    return True if not in_order or _is_in_order(found, [expected]) else None


def _differs_in_ties_only(database: Database, pair: _Pair, limits: SqlLimits, expected: QueryResult) -> bool:
    """Return whether a query has the reference's result, apart from the order of rows that it leaves tied."""
    found = run_query(database, pair.sql, limits)
    if not same_results(found, expected):
        return False
    try:
        broken = [run_query(database, each, limits) for each in break_ties(pair.reference, len(expected.columns))]
    except QueryFailed:
        return False
    return all(_same_rows(each, expected) for each in broken) and _is_in_order(found, [expected, *broken])


def _agrees_on_variant(script: str, pair: _Pair, limits: SqlLimits, number: int) -> bool | None:
    """Return whether a query has the same result as the reference on a copy of the database with other rows.

    Return None if the reference fails on the new rows. Also return None if its result depends on the order of the
    stored rows or of ties.
    """
    with closing(_opened()) as varied, closing(_opened()) as reversed_, closing(_opened()) as shuffled:
        _make(varied, script, limits)
        try:
            vary(varied, pair.reference, Random(f"{number}\n{pair.reference}\n{script}"))
            for copy, chance in ((reversed_, None), (shuffled, Random(number))):
                varied.backup(copy)
                reorder(copy, chance)
            expected, *others = (_read(each, pair.reference, limits) for each in (varied, reversed_, shuffled))
        except (sqlite3.Error, QueryFailed, MemoryError, OverflowError, UnicodeError):
            return None
        with suppress(QueryFailed):
            others += [_read(varied, each, limits) for each in break_ties(pair.reference, len(expected.columns))]
        if not all(_same_rows(other, expected) for other in others):
            return None
        for each in (varied, reversed_):
            found = _read(each, pair.sql, limits)
            if not _same_rows(found, expected):
                return False
            if is_ordered(pair.reference) and not _is_in_order(found, [expected, *others]):
                return False
        return True


def same_results(found: QueryResult, expected: QueryResult) -> bool:
    """Return whether two results have the same rows in any order. Column names are ignored.

    Numbers must agree to nine digits, or exactly in a column of whole numbers. The query must have read at least one
    of the tables that the reference read. If the expected result is empty, the query must have read exactly these
    tables and return the same number of columns.
    """
    if not _same_rows(found, expected):
        return False
    if not expected.rows:
        return not expected.tables or found.tables == expected.tables
    return not expected.tables or not expected.tables.isdisjoint(found.tables)


def _same_rows(found: QueryResult, expected: QueryResult) -> bool:
    if len(found.columns) != len(expected.columns) or len(found.rows) != len(expected.rows):
        return False
    if found.rows == expected.rows:
        # The usual case needs no conversion, which takes longer than the query.
        return True
    ours, theirs = map(Counter, _comparable_rows([found, expected]))
    return ours == theirs


def _is_in_order(found: QueryResult, valid: Sequence[QueryResult]) -> bool:
    """Return whether rows have a possible order. `valid` are results with the same rows in orders that are valid.

    Rows that have different orders in these results may have any order.
    """
    if any(found.rows == each.rows for each in valid):
        return True
    ours, first, *others = _comparable_rows([found, *valid])
    return set.intersection(set(range(len(first) + 1)), *(_common_starts(first, other) for other in others)) <= (
        _common_starts(first, ours)
    )


def _common_starts(one: Sequence[Hashable], other: Sequence[Hashable]) -> set[int]:
    """Return the numbers n for which the first n items of two lists are the same in any order."""
    found, surplus = {0}, Counter[Hashable]()
    for number, pair in enumerate(zip(one, other, strict=True), start=1):
        for item, step in zip(pair, (1, -1), strict=True):
            surplus[item] += step
            if not surplus[item]:
                del surplus[item]
        if not surplus:
            found.add(number)
    return found


def _comparable_rows(results: Sequence[QueryResult]) -> list[list[Hashable]]:
    rows = [row for result in results for row in result.rows]
    are_whole = [_are_whole(column) for column in zip(*rows, strict=True)]
    return [[_comparable(row, are_whole) for row in result.rows] for result in results]


def _are_whole(values: Iterable[Value]) -> bool:
    """Return whether all numbers of a column are whole. 2.0 counts as whole, but floats from 2**53 on do not."""
    numbers = (value for value in values if isinstance(value, float))
    return all(number.is_integer() and abs(number) < LARGEST_EXACT_FLOAT for number in numbers)


def _comparable(row: Sequence[Value], are_whole: Sequence[bool]) -> Hashable:
    return tuple(map(_rounded, row, are_whole))


def _rounded(value: Value, is_whole: bool) -> Value | tuple[str]:
    if not isinstance(value, int | float):
        return value
    # Compare whole numbers exactly, because they may be long keys.
    return int(value) if is_whole else (f"{float(value) + 0.0:.{SIGNIFICANT_DIGITS}g}",)


def last_sql(text: str) -> str | None:
    """Return the query in a model's answer: the last fenced block, or the whole answer if it is only a query."""
    block = last_code_block(text, ("sql", "sqlite", ""))
    if block is not None:
        return block.strip()
    return text.strip() if _BEGINS.match(text) else None


def as_table(result: QueryResult, *, rows: int = 50, width: int = 100) -> str:
    """Format a result for a model: one line per row, at most `rows` rows, cells truncated to `width` characters."""
    lines = [" | ".join(_cell(name, width) for name in result.columns)]
    lines += [" | ".join(_cell(value, width) for value in row) for row in result.rows[:rows]]
    left = len(result.rows) - rows
    return "\n".join([*lines, *([f"({left} more rows)"] if left > 0 else []), f"({len(result.rows)} rows in all)"])


def _cell(value: Value, width: int) -> str:
    text = "NULL" if value is None else value.hex() if isinstance(value, bytes) else str(value).replace("\n", " ")
    return text if len(text) <= width else f"{text[:width]}…"

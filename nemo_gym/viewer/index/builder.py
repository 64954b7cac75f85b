"""Bring an index up to date, in slices. Each slice is one transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.viewer.index import store
from nemo_gym.viewer.index.entry import Entry, NotARollout, entry_of, id_of, numbers_at_end
from nemo_gym.viewer.index.fields import Fields, FieldTables
from nemo_gym.viewer.index.lines import Cursor, FileLine, digest_at, is_same_file, lines_from

SLICE_S = 0.25
"""Seconds after which a slice ends, so that other viewers can write and readers see the progress."""
SLICE_LINES = 2000
SLICE_BYTES = 16 << 20
MOST_PROBLEMS = 100
READ_BYTES = 1 << 20

RESULTS, FAILURES, PLANNED = 0, 1, 2
OUTCOMES = {RESULTS: Outcome.SCORED, FAILURES: Outcome.FAILED, PLANNED: Outcome.UNRESOLVED}


def paths_of(files: RunFiles) -> dict[int, Path]:
    """Return the indexed files of a run, in the order in which they are read."""
    return {RESULTS: files.results, FAILURES: files.failures, PLANNED: files.materialized}


class Progress(NamedTuple):
    """The progress of indexing a run: the number of indexed bytes, and the total size of the run's files."""

    bytes: int
    of: int


class Read(NamedTuple):
    """The parts of a rollout that the index stores.

    The line and the `Entry` are not kept, because keeping them slows indexing by about a tenth.
    """

    id: int
    columns: tuple[object, ...]
    fields: Fields


class Toolsets:
    """The ids of the sets of tools that rollouts used. An instance is valid inside one transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[frozenset[str], int] = {}

    def of(self, tools: frozenset[str]) -> int:
        """Return the id of a set of tools. Store the set if it is new."""
        found = self._known.get(tools)
        if found is None:
            names = orjson.dumps(sorted(tools)).decode()
            self._db.execute("INSERT OR IGNORE INTO toolsets (names) VALUES (?)", (names,))
            (found,) = self._db.execute("SELECT id FROM toolsets WHERE names = ?", (names,)).fetchone()
            self._known[tools] = found
        return int(found)


@dataclass
class Slice:
    """The content of the lines that one transaction indexes."""

    file: int
    changed: int
    """The number of the transaction. It is stored with each rollout, so that a search finds later changes."""
    toolsets: Toolsets
    read: list[Read] = field(default_factory=list)
    planned: list[tuple[int, ...]] = field(default_factory=list)
    """Rows to insert into the table `planned`."""
    attempts: list[tuple[int, ...]] = field(default_factory=list)
    titles: dict[int, str] = field(default_factory=dict)
    """The title of each task, by task index."""
    problems: list[tuple[int, int | None, str]] = field(default_factory=list)
    has_tokens: bool = False
    has_timeline: bool = False
    model: str | None = None

    def add(self, line: FileLine, entry: Entry) -> None:
        number, times, tools = id_of(entry.key), entry.times, entry.tools
        if entry.problem:
            self.problems.append((self.file, line.number, entry.problem))
        if entry.title:
            self.titles[entry.key.task] = entry.title
        if self.file == PLANNED:
            self.planned.append((number, line.number, line.offset, line.bytes))
        if self.file == FAILURES and entry.outcome is Outcome.FAILED:
            self.attempts.append((number, entry.attempt, line.number, line.offset, line.bytes))
        self.has_tokens = self.has_tokens or entry.has_tokens
        self.has_timeline = self.has_timeline or times.started_at is not None
        self.model = self.model or entry.model
        columns = (
            number, entry.agent, entry.outcome.value, entry.reward, entry.failure, entry.tier, entry.server,
            entry.attempt, entry.attempt, entry.steps, None if tools is None else len(tools),
            None if tools is None else self.toolsets.of(frozenset(tools)),
            entry.input_tokens, entry.output_tokens, times.seconds, times.model_seconds, times.tool_seconds,
            times.started_at, times.ended_at, int(entry.is_masked), self.file, line.number, line.offset,
            line.bytes, self.changed,
        )  # fmt: skip
        self.read.append(Read(number, columns, entry.fields))


def index_some(db: sqlite3.Connection, paths: Mapping[int, Path], until: float) -> bool:
    """Index lines until `until`, a time of `time.monotonic()`. Return whether lines are left."""
    while True:
        db.execute("BEGIN IMMEDIATE")
        try:
            is_left = _index_slice(db, paths)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        if not is_left or time.monotonic() >= until:
            return is_left


def cursors_in(db: sqlite3.Connection) -> dict[int, Cursor]:
    """Return how far each file has been read."""
    stored = db.execute("SELECT file, bytes, lines, digest FROM files")
    return {file: Cursor(*rest) for file, *rest in stored}


def _index_slice(db: sqlite3.Connection, paths: Mapping[int, Path]) -> bool:
    cursors = cursors_in(db)
    if not all(file in paths and is_same_file(paths[file], cursor) for file, cursor in cursors.items()):
        store.remake(db)
        cursors = {}
    for number, path in paths.items():
        cursor = cursors.get(number, Cursor())
        size = _size_of(path)
        if size > cursor.bytes:
            if _index_lines(db, path, number, cursor):
                return True
            store.set_fact(db, f"incomplete {number}", size)
    return False


def progress_of(db: sqlite3.Connection, paths: Mapping[int, Path]) -> Progress:
    """Return how far the files of a run are indexed."""
    cursors = cursors_in(db)
    sizes = {file: _size_of(path) for file, path in paths.items()}
    read = {file: min(cursors[file].bytes, size) if file in cursors else 0 for file, size in sizes.items()}
    return Progress(sum(read.values()), sum(sizes.values()))


def incomplete_lines(db: sqlite3.Connection, paths: Mapping[int, Path]) -> dict[int, int]:
    """Return the size of each file's incomplete last line, if indexing has reached that line."""
    cursors = cursors_in(db)
    sizes = {file: _size_of(path) for file, path in paths.items()}
    return {
        file: size - cursors.get(file, Cursor()).bytes
        for file, size in sizes.items()
        if store.fact(db, f"incomplete {file}") == size
    }


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _index_lines(db: sqlite3.Connection, path: Path, file: int, cursor: Cursor) -> bool:
    """Index the next lines of a file. Return False if there are no new lines."""
    part = Slice(file, int(str(store.fact(db, "changed"))) + 1, Toolsets(db))
    with path.open("rb", buffering=READ_BYTES) as opened:
        end = _read(db, part, lines_from(opened, cursor), cursor)
        if end.bytes == cursor.bytes:
            return False
        end = end._replace(digest=digest_at(opened, end.bytes))
    Writer(db, part).write()
    db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (file, *end))
    store.set_fact(db, "changed", part.changed)
    return True


def _read(db: sqlite3.Connection, part: Slice, lines: Iterator[FileLine], cursor: Cursor) -> Cursor:
    """Read lines into a slice. Return the cursor after the last line that was read."""
    size, until = 0, time.monotonic() + SLICE_S
    planned: list[FileLine] = []
    latest: FileLine | None = None
    for line in lines:
        if not line.is_complete and not _is_json(line):
            break
        latest = line
        size += line.bytes
        if part.file == PLANNED:
            planned.append(line)
        else:
            _parse(part, line)
        if line.number % 64 == 0 and time.monotonic() > until:
            break
        if size >= SLICE_BYTES or len(part.read) + len(planned) >= SLICE_LINES:
            break
    _parse_planned(db, part, planned)
    return Cursor(latest.offset + latest.bytes + latest.is_complete, latest.number) if latest else cursor


def _is_json(line: FileLine) -> bool:
    """Return whether a line without a newline is complete, which is the case if it is a valid JSON object."""
    try:
        return line.is_whole and isinstance(orjson.loads(line.raw), dict)
    except orjson.JSONDecodeError:
        return False


def _parse(part: Slice, line: FileLine) -> None:
    if not line.raw.strip():
        return
    try:
        entry = entry_of(line, OUTCOMES[part.file], part.titles)
    except NotARollout as error:
        part.problems.append((part.file, line.number, str(error)))
        return
    part.add(line, entry)


def _parse_planned(db: sqlite3.Connection, part: Slice, lines: list[FileLine]) -> None:
    """Parse the planned rows whose rollouts are not in the index yet. For other rows, keep only the file position."""
    numbers = [(line, numbers_at_end(line.raw)) for line in lines]
    known = existing(db, [id_of(key) for _, key in numbers if key is not None])
    for line, key in numbers:
        if key is not None and id_of(key) in known:
            part.planned.append((id_of(key), line.number, line.offset, line.bytes))
        else:
            _parse(part, line)


def existing(db: sqlite3.Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the outcomes of these rollouts, by id. Rollouts that are not in the index are left out."""
    wanted = orjson.dumps(ids).decode()
    return dict(db.execute("SELECT id, outcome FROM rollouts WHERE id IN (SELECT value FROM json_each(?))", (wanted,)))


class Writer:
    """A writer that stores one slice in the index."""

    def __init__(self, db: sqlite3.Connection, part: Slice) -> None:
        self._db = db
        self._part = part

    def write(self) -> None:
        """Store the slice: current records of rollouts, and positions of planned rows and failed attempts."""
        part, db = self._part, self._db
        db.executemany("INSERT OR REPLACE INTO planned VALUES (?, ?, ?, ?)", part.planned)
        db.executemany("INSERT INTO attempts VALUES (?, ?, ?, ?, ?)", part.attempts)
        known = existing(db, [each.id for each in part.read])
        current = {each.id: each for each in part.read if _replaces(part.file, known.get(each.id))}
        self._write_current(current, replaced=[number for number in current if number in known])
        self._count_attempts([each.id for each in part.read])
        self._note_problems()

    def _write_current(self, current: dict[int, Read], replaced: list[int]) -> None:
        db, part = self._db, self._part
        marks = ", ".join("?" * len(store.COLUMNS))
        rows = [each.columns for each in current.values()]
        db.executemany(f"INSERT OR REPLACE INTO rollouts VALUES ({marks})", rows)
        db.executemany("INSERT OR IGNORE INTO titles VALUES (?, ?)", part.titles.items())
        tables = FieldTables(db)
        tables.remove(replaced)
        tables.add([(number, each.fields) for number, each in current.items()])
        if tables.ignored:
            names = ", ".join(sorted(tables.ignored)[:3])
            part.problems.append(
                (part.file, None, f"too many fields, so {names} and others are not available as columns.")
            )
        if part.has_tokens:
            store.set_fact(db, "has_tokens", 1)
        if part.has_timeline:
            store.set_fact(db, "has_timeline", 1)
        if part.model and store.fact(db, "model") is None:
            store.set_fact(db, "model", part.model)

    def _count_attempts(self, ids: list[int]) -> None:
        """For each of these rollouts with failed attempts, store how many of them precede the current record."""
        wanted = orjson.dumps(ids).decode()
        self._db.execute(
            "UPDATE rollouts SET attempts = (SELECT COUNT(*) FROM attempts WHERE attempts.id = rollouts.id)"
            " - (outcome = 'failed') WHERE file IN (?, ?) AND id IN"
            " (SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM attempts WHERE attempts.id = value))",
            (RESULTS, FAILURES, wanted),
        )

    def _note_problems(self) -> None:
        (before,) = self._db.execute("SELECT COUNT(*) FROM problems").fetchone()
        left = max(0, MOST_PROBLEMS - before)
        self._db.executemany("INSERT INTO problems VALUES (?, ?, ?)", self._part.problems[:left])
        more = len(self._part.problems) - left
        if more > 0:
            store.set_fact(self._db, "more_problems", int(str(store.fact(self._db, "more_problems") or 0)) + more)


def _replaces(file: int, outcome: str | None) -> bool:
    """Return whether a record from `file` replaces the current record, whose outcome is `outcome` (or None)."""
    if outcome is None or file == RESULTS:
        return True
    return file == FAILURES and outcome != Outcome.SCORED

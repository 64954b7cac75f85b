"""Bring an index up to date, in slices. Each slice is one transaction."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nemo_gym.errors import DataError
from nemo_gym.records.conversation import object_at
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import Ended, LedgerLine, Note, lines_of, of_json, start_of
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.schemas.row import PRIVATE_PREFIX, numbers_at_end
from nemo_gym.viewer.index import store
from nemo_gym.viewer.index.entry import Entry, NotARollout, entry_of, id_of
from nemo_gym.viewer.index.fields import Fields, FieldTables
from nemo_gym.viewer.index.lines import Cursor, FileLine, digest_at, is_same_file, lines_from

SLICE_S = 0.25
"""Seconds after which a slice ends, so that other viewers can write and readers see the progress."""
SLICE_LINES = 2000
SLICE_BYTES = 16 << 20
MOST_PROBLEMS = 100
READ_BYTES = 1 << 20

RESULTS, FAILURES, PLANNED, LEDGER = 0, 1, 2, 3
NUMBERS = {"results": RESULTS, "failures": FAILURES}
"""The numbers of the files that the events of the ledger name."""
OUTCOMES = {RESULTS: Outcome.SCORED, FAILURES: Outcome.FAILED, PLANNED: Outcome.UNRESOLVED}


def paths_of(files: RunFiles) -> dict[int, Path]:
    """Return the indexed files of a run, in the order in which they are read."""
    return {RESULTS: files.results, FAILURES: files.failures, PLANNED: files.materialized, LEDGER: files.ledger}


class Progress(NamedTuple):
    """The progress of indexing a run's files, apart from the ledger, which only adds times."""

    bytes: int
    """The number of indexed bytes."""
    of: int
    """The total size of the files."""
    incomplete: Mapping[int, int]
    """The size of each file's incomplete last line, if indexing has reached that line."""


class Slice:
    """The content of the lines that one transaction indexes."""

    def __init__(self, db: sqlite3.Connection, file: int) -> None:
        self.file = file
        self.changed = int(str(store.fact(db, "changed"))) + 1
        """The number of the transaction. It is stored with each rollout, so that a search finds later changes."""
        self.titles: dict[int, str] = {}
        """The title of each task, by task index."""
        self._db = db
        # Keep no lines or entries here, because keeping them slows indexing by about a tenth.
        self._rollouts: list[tuple[int, tuple[object, ...], Fields]] = []
        self._planned: list[tuple[int, ...]] = []
        self._attempts: list[tuple[int, ...]] = []
        self._problems: list[tuple[int, int | None, str]] = []
        self._calls: dict[int, Sequence[tuple[str, float]]] = {}
        self._facts: dict[str, object] = {}
        self._toolsets: dict[bytes, int] = {}

    @property
    def rollouts(self) -> int:
        """The number of rollouts that were added."""
        return len(self._rollouts)

    def add(self, line: FileLine, entry: Entry) -> None:
        """Add the record of a rollout."""
        number, times, toolset = id_of(entry.key), entry.times, None
        if entry.tools is not None:
            counts = orjson.dumps(entry.tools, option=orjson.OPT_SORT_KEYS)
            toolset = self._toolsets.get(counts) or self._toolsets.setdefault(counts, _digest_of(counts))
        if entry.problem:
            self.add_problem(line, entry.problem)
        if entry.title:
            self.titles[entry.key.task] = entry.title
        if self.file == PLANNED:
            self.add_planned(line, number)
        if self.file == FAILURES and entry.outcome is Outcome.FAILED:
            self._attempts.append((number, entry.attempt, line.number, line.offset, line.bytes))
        if entry.has_tokens:
            self._facts["has_tokens"] = 1
        if times.started_at is not None:
            self._facts["has_timeline"] = 1
        if entry.model:
            self._facts.setdefault("model", entry.model)
        columns = (
            number, entry.key.task, entry.agent, entry.outcome.value, entry.reward, entry.failure, entry.tier,
            entry.server, entry.attempt, entry.attempt, entry.steps, entry.tool_calls, toolset,
            entry.input_tokens, entry.output_tokens, entry.log_prob, times.seconds, times.model_seconds,
            times.tool_seconds, times.started_at, times.ended_at, int(entry.is_masked), self.file, line.number,
            line.offset, line.bytes, self.changed,
        )  # fmt: skip
        self._rollouts.append((number, columns, entry.fields))
        self._calls[number] = times.of_tools

    def add_planned(self, line: FileLine, number: int) -> None:
        """Add the position of the planned row of the rollout with this id."""
        self._planned.append((number, line.number, line.offset, line.bytes))

    def add_problem(self, line: FileLine, problem: str) -> None:
        self._problems.append((self.file, line.number, problem))

    def write(self) -> None:
        """Store the slice: current records of rollouts, and positions of planned rows and failed attempts."""
        db = self._db
        db.executemany("INSERT OR REPLACE INTO planned VALUES (?, ?, ?, ?)", self._planned)
        db.executemany("INSERT INTO attempts VALUES (?, ?, ?, ?, ?)", self._attempts)
        ids = [number for number, _, _ in self._rollouts]
        known = existing(db, ids)
        current = {
            number: (columns, fields)
            for number, columns, fields in self._rollouts
            if _replaces(self.file, known.get(number))
        }
        marks = ", ".join("?" * len(store.COLUMNS))
        columns_of = (columns for columns, _ in current.values())
        db.executemany(f"INSERT OR REPLACE INTO rollouts VALUES ({marks})", columns_of)
        db.executemany("INSERT OR IGNORE INTO titles VALUES (?, ?)", self.titles.items())
        toolsets = ((number, counts.decode()) for counts, number in self._toolsets.items())
        db.executemany("INSERT OR IGNORE INTO toolsets VALUES (?, ?)", toolsets)
        again = [(number,) for number in current if number in known]
        db.executemany("DELETE FROM calls WHERE id = ?", again)
        calls = ((number, at, *call) for number in current for at, call in enumerate(self._calls[number]))
        db.executemany("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?)", calls)
        tables = FieldTables(db)
        tables.remove([number for (number,) in again])
        tables.add([(number, fields) for number, (_, fields) in current.items()])
        if tables.ignored:
            names = ", ".join(sorted(tables.ignored)[:3])
            self._problems.append(
                (self.file, None, f"too many fields, so {names} and others are not available as columns.")
            )
        db.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", self._facts.items())
        self._count_attempts(ids)
        self._write_problems()

    def _count_attempts(self, ids: list[int]) -> None:
        """For each of these rollouts with failed attempts, store how many of them precede the current record."""
        wanted = orjson.dumps(ids).decode()
        self._db.execute(
            "UPDATE rollouts SET attempts = (SELECT COUNT(*) FROM attempts WHERE attempts.id = rollouts.id)"
            " - (outcome = 'failed') WHERE file IN (?, ?) AND id IN"
            " (SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM attempts WHERE attempts.id = value))",
            (RESULTS, FAILURES, wanted),
        )

    def _write_problems(self) -> None:
        (before,) = self._db.execute("SELECT COUNT(*) FROM problems").fetchone()
        left = max(0, MOST_PROBLEMS - before)
        self._db.executemany("INSERT INTO problems VALUES (?, ?, ?)", self._problems[:left])
        more = len(self._problems) - left
        if more > 0:
            store.set_fact(self._db, "more_problems", int(str(store.fact(self._db, "more_problems") or 0)) + more)


def index_some(db: sqlite3.Connection, paths: Mapping[int, Path], until: float) -> bool:
    """Index lines until `until`, a time of `time.monotonic()`. Return whether lines are left."""
    while True:
        with db:
            db.execute("BEGIN IMMEDIATE")
            is_left = _index_slice(db, paths)
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
            if number == LEDGER:
                return _index_ledger(db, path, cursor)
            if _index_lines(db, path, number, cursor):
                return True
            store.set_fact(db, f"incomplete {number}", size)
    return False


def progress_of(db: sqlite3.Connection, paths: Mapping[int, Path]) -> Progress:
    """Return how far the files of a run are indexed."""
    cursors = cursors_in(db)
    sizes = {file: _size_of(path) for file, path in paths.items() if file != LEDGER}
    left = {file: max(0, size - cursors.get(file, Cursor()).bytes) for file, size in sizes.items()}
    incomplete = {file: left[file] for file, size in sizes.items() if store.fact(db, f"incomplete {file}") == size}
    return Progress(sum(sizes.values()) - sum(left.values()), sum(sizes.values()), incomplete)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _index_lines(db: sqlite3.Connection, path: Path, file: int, cursor: Cursor) -> bool:
    """Index the next lines of a file. Return False if there are no new lines."""
    part = Slice(db, file)
    with path.open("rb", buffering=READ_BYTES) as opened:
        end = _read(db, part, lines_from(opened, cursor), cursor)
        if end.bytes == cursor.bytes:
            return False
    part.write()
    _keep(db, path, file, end)
    return True


def _keep(db: sqlite3.Connection, path: Path, file: int, cursor: Cursor) -> None:
    """Store how far a file has been read."""
    with path.open("rb") as opened:
        digest = digest_at(opened, cursor.bytes)
    db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (file, cursor.bytes, cursor.lines, digest))
    store.set_fact(db, "changed", int(str(store.fact(db, "changed"))) + 1)


def _index_ledger(db: sqlite3.Connection, path: Path, cursor: Cursor) -> bool:
    """Add the times and tools of ended rollouts, and a trainer's notes. Return False if the ledger has not grown.

    A row is written before its event. At the first event whose row is not indexed yet, stop.
    """
    read, until = cursors_in(db), time.monotonic() + SLICE_S
    times: list[dict[str, Any]] = []
    notes: list[tuple[object, ...]] = []
    end = cursor
    # If another program has written lines into the ledger, the events before them still count.
    with suppress(DataError):
        for line in lines_of(path, cursor.bytes):
            found = _times_in(line)
            if found is not None and found["end"] > read.get(found["file"], cursor).bytes:
                break
            end = Cursor(line.offset + len(line.raw), end.lines + 1)
            if found is not None:
                times.append(found)
            elif line.raw.startswith(_NOTE):
                notes += _note_in(line)
            if len(times) >= SLICE_LINES or time.monotonic() > until:
                break
    if end.bytes == cursor.bytes:
        return False
    db.executemany(_SET_TIMES, times)
    db.executemany("INSERT INTO trained VALUES (?, ?, ?, ?)", notes)
    called = [each for each in times if each["counts"] != "{}"]
    db.executemany("INSERT OR IGNORE INTO toolsets VALUES (:toolset, :counts)", called)
    db.executemany(_SET_TOOLS, called)
    _keep(db, path, LEDGER, end)
    return True


_ENDED, _NOTE = start_of(Ended), start_of(Note)
_SET_TIMES = (
    "UPDATE rollouts SET seconds = :seconds, model_seconds = COALESCE(:model, model_seconds),"
    " tool_seconds = COALESCE(:tools, tool_seconds), started_at = :at - :seconds, ended_at = :at"
    " WHERE id = :id AND file = :file AND offset = :offset AND :seconds IS NOT NULL"
)


_SET_TOOLS = (
    "UPDATE rollouts SET toolset = :toolset, tool_calls = :calls WHERE id = :id AND file = :file AND offset = :offset"
    " AND (COALESCE(tool_calls, 0) = 0 OR :failed > (SELECT TOTAL(json_extract(called.value, '$[1]'))"
    " FROM toolsets, json_each(counts) AS called WHERE toolsets.id = toolset))"
)
"""Use the agent's counts for calls that are not in the response, and for failures that a result does not show."""


def _times_in(line: LedgerLine) -> dict[str, Any] | None:
    """Return the times in an event, with the place of its row, or None if it is not about a row or is invalid."""
    if not line.raw.startswith(_ENDED):
        return None
    try:
        event = of_json(line.fields)
        if not isinstance(event, Ended) or event.file is None or event.offset is None or event.bytes is None:
            return None
        counts = orjson.dumps(event.tools, option=orjson.OPT_SORT_KEYS)
        return {
            "id": id_of(event.key), "file": NUMBERS[event.file], "offset": event.offset,
            "end": event.offset + event.bytes, "at": event.at, "seconds": event.seconds,
            "model": event.phases.get("model"), "tools": event.phases.get("tools"),
            "toolset": _digest_of(counts), "counts": counts.decode(),
            "calls": sum(calls for calls, _ in event.tools.values()),
            "failed": sum(failed for _, failed in event.tools.values()),
        }  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError):
        # Another program has changed the ledger, so use only the rows.
        return None


def _note_in(line: LedgerLine) -> Iterator[tuple[object, ...]]:
    """Yield the row of `trained` for a trainer's note, if it is valid."""
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        note = line.fields
        numbers = {name: value for name, value in note["fields"].items() if type(value) in (int, float)}
        version, step = numbers.pop("policy_version", None), numbers.pop("step", None)
        yield note["at"], version, step, orjson.dumps(numbers).decode()


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
        if size >= SLICE_BYTES or part.rollouts + len(planned) >= SLICE_LINES:
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
        part.add_problem(line, str(error))
        return
    part.add(line, entry)


def _parse_planned(db: sqlite3.Connection, part: Slice, lines: list[FileLine]) -> None:
    """Parse the planned rows whose rollouts are not in the index yet. For other rows, keep only the file position."""
    numbers = [(line, numbers_at_end(line.raw)) for line in lines]
    known = existing(db, [id_of(key) for _, key in numbers if key is not None])
    for line, key in numbers:
        if key is not None and key.repeat == 0 and line.is_whole:
            with suppress(orjson.JSONDecodeError):
                db.execute("INSERT OR REPLACE INTO prompts VALUES (?, ?)", (key.task, _digest_of(prompt_of(line.raw))))
        if key is not None and id_of(key) in known:
            part.add_planned(line, id_of(key))
        else:
            _parse(part, line)


def prompt_of(row: bytes) -> bytes:
    """Return the part of a planned row that stays the same when a trainer plans the row again."""
    fields = orjson.loads(row)
    kept = {name: value for name, value in fields.items() if not name.startswith(PRIVATE_PREFIX)}
    kept["responses_create_params"] = object_at(fields, "responses_create_params").get("input")
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)


def _digest_of(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")


def existing(db: sqlite3.Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the outcomes of these rollouts, by id. Rollouts that are not in the index are left out."""
    wanted = orjson.dumps(ids).decode()
    return dict(db.execute("SELECT id, outcome FROM rollouts WHERE id IN (SELECT value FROM json_each(?))", (wanted,)))


def _replaces(file: int, outcome: str | None) -> bool:
    """Return whether a record from `file` replaces the current record, whose outcome is `outcome` (or None)."""
    if outcome is None or file == RESULTS:
        return True
    return file == FAILURES and outcome != Outcome.SCORED

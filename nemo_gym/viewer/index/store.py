"""The SQLite file of an index: its path, its tables, and its replacement if it is damaged."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from nemo_gym.errors import DataError

logger = logging.getLogger(__name__)

CONTENT = 2
"""The version of the content. Increase it if the content of the tables changes but `SCHEMA` does not."""
UNUSED_DAYS = 60
BUSY_S = 30.0
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_MISMATCH}

COLUMNS = (
    "id", "task", "agent", "outcome", "reward", "failure", "tier", "server", "attempt", "attempts", "steps",
    "tool_calls", "toolset", "input_tokens", "output_tokens", "log_prob", "seconds", "model_seconds", "tool_seconds",
    "started_at", "ended_at", "is_masked", "file", "line", "offset", "bytes", "changed",
)  # fmt: skip

SCHEMA = f"""
CREATE TABLE rollouts ({COLUMNS[0]} INTEGER PRIMARY KEY, {", ".join(COLUMNS[1:])});
CREATE INDEX scores ON rollouts (task, agent, outcome, reward);
CREATE TABLE titles (task INTEGER PRIMARY KEY, title);
CREATE TABLE attempts (id, attempt, line, offset, bytes);
CREATE INDEX attempts_of ON attempts (id);
CREATE TABLE planned (id INTEGER PRIMARY KEY, line, offset, bytes);
CREATE TABLE toolsets (id INTEGER PRIMARY KEY, counts UNIQUE);
CREATE TABLE calls (id, number, tool, seconds, PRIMARY KEY (id, number)) WITHOUT ROWID;
CREATE TABLE prompts (task INTEGER PRIMARY KEY, digest);
CREATE TABLE trained (at, version, step, numbers);
CREATE INDEX trained_at ON trained (at);
CREATE TABLE fields (id INTEGER PRIMARY KEY, name UNIQUE, kind, is_counted);
CREATE TABLE counts (field, value, count, PRIMARY KEY (field, value)) WITHOUT ROWID;
CREATE TABLE files (file INTEGER PRIMARY KEY, bytes, lines, digest);
CREATE TABLE problems (file, line, message);
CREATE TABLE facts (name PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE searches (id INTEGER PRIMARY KEY, words, scope, changed, used_at, UNIQUE (words, scope));
CREATE TABLE hits (search, id, PRIMARY KEY (search, id)) WITHOUT ROWID;
"""
"""The tables of an index. The rows of `rollouts` are short, because filtering and sorting read all of them. The fields
of the records are in the tables of `FieldTables`. `toolsets` has the counts of `Entry.tools`, as JSON."""
VERSION = zlib.crc32(f"{CONTENT} {SCHEMA}".encode()) & 0x7FFFFFFF
"""A part of an index file's name, so that viewers of two releases do not rebuild each other's indexes."""


def cache_folder() -> Path:
    """Return the folder of the indexes in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # Ignore a relative path, as the XDG specification requires.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "nemo_gym" / "viewer"


def forget_unused(folder: Path) -> None:
    """Delete the indexes that no viewer has used for a long time."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for path in folder.glob("*.sqlite"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                delete(path)


def delete(path: Path) -> None:
    """Delete an index. Other viewers keep the opened file and notice the new file at their next request."""
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        each.unlink(missing_ok=True)


class Store:
    """The SQLite file with the index of one results file."""

    def __init__(self, results: Path, folder: Path) -> None:
        digest = hashlib.sha256(os.fsencode(results.resolve())).hexdigest()[:24]
        self.path = folder / f"{digest}-{VERSION:08x}.sqlite"
        self._making = Lock()

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """Open the index for the duration of the block. If the index is damaged, delete and rebuild it.

        Raise `IndexLost` if the damage is found inside the block. Raise `DataError` if the index cannot be used.
        """
        try:
            db = self._opened()
            try:
                yield db
            finally:
                db.close()
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                logger.warning("%s is damaged and will be rebuilt (%s)", self.path, error)
                delete(self.path)
                raise IndexLost(f"{self.path}: the index was damaged and will be rebuilt. Reload the page.") from error
            raise DataError(
                f"{self.path}: the index cannot be used ({error}). Check that this file is writable and that its disk "
                "is not full."
            ) from error

    def _opened(self) -> sqlite3.Connection:
        with self._making:
            try:
                return self._connect()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                logger.warning("%s is damaged and will be rebuilt (%s)", self.path, error)
                delete(self.path)
                return self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DataError(
                f"{self.path.parent}: cannot be created ({error.strerror}). Set XDG_CACHE_HOME to a writable folder."
            ) from error
        db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA page_size = 16384")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA cache_size = -8000")
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                _make(db)
        except BaseException:
            db.close()
            raise
        return db


class IndexLost(DataError):
    """The error for an index that was damaged and has been deleted. The next request builds a new index."""


def _make(db: sqlite3.Connection) -> None:
    """Create the tables, unless another process has created them meanwhile."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            remake(db)
            db.execute(f"PRAGMA user_version = {VERSION}")


def remake(db: sqlite3.Connection) -> None:
    """Empty the index. The caller must have begun a transaction.

    The index gets a new generation id, so that cached results for the old content are not used.
    """
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for name in names:
        if not name.startswith("sqlite_"):
            quoted = name.replace('"', '""')
            db.execute(f'DROP TABLE "{quoted}"')
    for statement in filter(str.strip, SCHEMA.split(";\n")):
        db.execute(statement)
    facts = [("generation", os.urandom(8).hex()), ("changed", 0)]
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)


def fact(db: sqlite3.Connection, name: str) -> object:
    """Return the value stored under a name, or None if the name is unknown."""
    found = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return found[0] if found else None


def set_fact(db: sqlite3.Connection, name: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    # Treat a missing table or column as damage, because another program must have changed the file.
    return code is not None and (
        code & 0xFF in DAMAGED or "no such table" in str(error) or "no such column" in str(error)
    )

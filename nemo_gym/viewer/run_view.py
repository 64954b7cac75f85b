"""One run as the pages show it: its files, its record, its index and its notes."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from threading import Lock
from typing import Literal

from nemo_gym.calls.running import is_alive
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.run_record import RunRecord, Session, read_record
from nemo_gym.viewer.index.builder import paths_of
from nemo_gym.viewer.index.census import Census
from nemo_gym.viewer.index.indexer import Indexer
from nemo_gym.viewer.index.run_index import RunIndex
from nemo_gym.viewer.index.times import moment_of
from nemo_gym.viewer.notes import SUFFIX, Notes

REFRESH_S = 0.3
"""The maximum number of seconds that a request waits until appended lines are indexed. A small file needs less."""
RunState = Literal["running", "finished", "interrupted", "stopped", "killed", "unknown"]
SILENT_S = 60.0
"""The age in seconds from which a record is outdated. A running collection updates its record every 5 s."""


class RunView:
    """One run with its files, its index and its notes. Thread-safe."""

    def __init__(
        self, name: str, files: RunFiles, cache: Path, indexer: Indexer, allows: Callable[[Path], bool]
    ) -> None:
        """Store the index of the run in the folder `cache`. Files for which `allows` returns False are not read."""
        self.id = hashlib.sha256(os.fsencode(files.results)).hexdigest()[:12]
        self.name = name
        self.files = files
        self.is_live = False
        """Whether the run's collection is running on this machine and can be controlled."""
        self.notes = Notes(files.results.with_name(f"{files.results.stem}{SUFFIX}"))
        self.index = RunIndex(files, cache, self.notes.all, allows)
        self._indexer = indexer
        self._lock = Lock()
        self._seen: object = None
        self._record: RunRecord | None = None
        self._record_seen: object = None
        self._fault: str | None = None

    @property
    def record(self) -> RunRecord | None:
        """The run's record, read again if it has changed."""
        version = _version(self.files.record)
        with self._lock:
            if version != self._record_seen:
                is_there = version is not None and self.index.allows(self.files.record)
                self._record = read_record(self.files.record) if is_there else None
                self._record_seen = version
            return self._record

    @property
    def began_at(self) -> float:
        """The start of the run in seconds since the epoch; if unknown, the time when the results were last written."""
        began_at = moment_of(self.record.started_at) if self.record else None
        if began_at is not None:
            return began_at.timestamp()
        try:
            return self.files.results.stat().st_mtime
        except OSError:
            return 0.0

    def refresh(self, wait_s: float = REFRESH_S) -> None:
        """Let the indexer read the lines that were appended to the files. Wait for it at most `wait_s` seconds."""
        index = _version(self.index.path)
        # Also check the inode of the index, because a damaged index is deleted and replaced by an empty one.
        seen = [*map(_version, paths_of(self.files).values()), index and index[0]]
        with self._lock:
            has_changed, self._seen = seen != self._seen or index is None or self._fault is not None, seen
        if has_changed:
            self._indexer.want(self)
        self._indexer.wait(self, wait_s)

    def index_some(self, seconds: float) -> bool:
        """Index the run's files for about `seconds`. Return whether lines are left to index."""
        return self.index.index_some(seconds)

    def cannot_index(self, problem: str | None) -> None:
        """Record why indexing failed. `problem` is None if indexing works again."""
        self._fault = problem

    def census(self) -> Census:
        """Return the counts over all rollouts. While the run grows, they may lag slightly behind the index."""
        return self.index.census()

    def as_json(self) -> JsonObject:
        """Return the run as JSON (type `Run` in api.ts)."""
        record, state = self.record, state_of(self.files, self.record)
        try:
            summary = self.index.summary(is_running=state == "running")
            problems = list(self._problems(state == "running"))
        except DataError as error:
            summary, problems = None, [self._problem(None, str(error))]
        census = summary.census if summary else Census()
        scored, failed = census.outcomes[Outcome.SCORED], census.outcomes[Outcome.FAILED]
        planned = summary.planned if summary else None
        if planned is None and record is not None:
            planned = record.outcomes.planned
        return {
            "id": self.id,
            "name": self.name,
            "path": str(self.files.results),
            "state": state,
            "reason": (record.reason or record.ended_by) if record else None,
            "started_at": record.started_at if record else None,
            "ended_at": record.ended_at if record else None,
            "seconds": _seconds(record, is_running=state == "running"),
            "planned": planned,
            "scored": scored,
            "failed": failed,
            "unresolved": max(0, planned - scored - failed) if planned is not None else None,
            "mean_reward": census.mean_reward,
            "pass_at": summary.pass_at if summary else None,
            "model": _model_of(record) or (summary.model if summary else None),
            "agents": sorted(census.agents),
            "settings": _settings(record),
            "command": record.command if record else None,
            "indexed": summary.indexed if summary else {"bytes": 0, "of": 0},
            "problems": problems,
            "is_live": self.is_live,
            "has": summary.has if summary else {"tokens": False, "timeline": False, "components": False},
        }

    def _problems(self, is_running: bool) -> Iterator[JsonObject]:
        if self._fault:
            yield self._problem(None, self._fault)
        if self._record is None and self._record_seen is not None:
            yield {
                "file": str(self.files.record),
                "line": None,
                "message": "the record of the run is not readable, so its settings are not shown.",
            }
        yield from self.index.problems(is_running=is_running)
        yield from self.notes.problems()

    def _problem(self, line: int | None, message: str) -> JsonObject:
        return {"file": str(self.files.results), "line": line, "message": message}


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _seconds(record: RunRecord | None, *, is_running: bool) -> float | None:
    """Return the duration of all sessions together, of the latest one up to now if it is still running."""
    if record is None:
        return None
    ends = [moment_of(session.ended_at) for session in record.earlier_sessions]
    ends.append(datetime.now(UTC) if is_running else moment_of(record.ended_at))
    sessions = zip((*record.earlier_sessions, record), ends, strict=True)
    seconds = [each for each in starmap(_seconds_of, sessions) if each is not None]
    return sum(seconds) if seconds else None


def _seconds_of(session: Session, ended_at: datetime | None) -> float | None:
    """Return the duration of a session. If it was killed, return that of its recorded progress."""
    started_at = moment_of(session.started_at)
    if started_at and ended_at:
        return max(0.0, (ended_at - started_at).total_seconds())
    lasted = session.progress[-1].at_s if session.progress else math.nan
    return lasted if math.isfinite(lasted) else None


def _model_of(record: RunRecord | None) -> str | None:
    return record.policy_model_name if record else None


def _settings(record: RunRecord | None) -> JsonObject:
    """Return a run's recorded settings that are not empty, keyed by dotted name."""
    settings: JsonObject = {}
    waiting: list[tuple[str, object]] = [("", {**record.settings, "models": record.models})] if record else []
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += [(f"{name}.{key}" if name else str(key), each) for key, each in reversed(value.items())]
        elif value is not None and value != {}:
            settings[name] = value
    return settings


def state_of(files: RunFiles, record: RunRecord | None) -> RunState:
    """Return the state of a run. A run whose process ended without recording a final state was killed."""
    if record is None:
        return "unknown"
    if record.state != "running":
        return record.state
    if record.host != socket.gethostname():
        return "running" if _age_of(files) < SILENT_S else "unknown"
    # Test the lock only if the process seems to have ended. The test takes the lock for a moment, and a collection
    # that starts at this moment fails. Also check the age of the record, because process ids are reused.
    is_there = is_alive(record.pid) and _age_of(files) < SILENT_S
    return "running" if is_there or _is_locked(files) else "killed"


def _age_of(files: RunFiles) -> float:
    try:
        return time.time() - files.record.stat().st_mtime
    except OSError:
        return float("inf")


def _is_locked(files: RunFiles) -> bool:
    try:
        opened = os.open(files.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # The file system does not support locks, so no process can hold this lock.
        return False
    finally:
        os.close(opened)
    return False

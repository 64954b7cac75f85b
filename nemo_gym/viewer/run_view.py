"""One run as the pages show it: its files, its record, its index and its notes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from threading import Lock

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import last_event_at
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.run_record import RunRecord, Session, read_record, state_of
from nemo_gym.viewer.discovery import Problem, version_of
from nemo_gym.viewer.index.builder import paths_of
from nemo_gym.viewer.index.indexer import Indexer
from nemo_gym.viewer.index.run_index import RunIndex, Summary
from nemo_gym.viewer.notes import SUFFIX, Notes
from nemo_gym.viewer.timeline import moment_of

REFRESH_S = 0.3
"""The maximum number of seconds that a request waits until appended lines are indexed. A small file needs less."""


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

    @property
    def record(self) -> RunRecord | None:
        """The run's record, read again if it has changed."""
        version = version_of(self.files.record)
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
        index = version_of(self.index.path)
        # Also check the inode of the index, because a damaged index is deleted and replaced by an empty one.
        seen = [*map(version_of, paths_of(self.files).values()), index and index[0]]
        with self._lock:
            has_changed, self._seen = seen != self._seen or index is None or self.index.fault is not None, seen
        if has_changed:
            self._indexer.want(self.index)
        self._indexer.wait(self.index, wait_s)

    def as_json(self) -> JsonObject:
        """Return the run as JSON (type `Run` in api.ts)."""
        record, state = self.record, state_of(self.files, self.record)
        try:
            summary = self.index.summary(is_running=state == "running")
            problems = list(self._problems(state == "running"))
        except DataError as error:
            summary, problems = Summary(), [self._problem(str(error))]
        census, planned = summary.census, summary.planned
        scored, failed = (census.counts["outcomes"][outcome] for outcome in (Outcome.SCORED, Outcome.FAILED))
        if record is not None and summary.indexed["bytes"] < summary.indexed["of"]:
            # Indexing a large run takes a minute, but its record has the counts already.
            scored, failed = record.outcomes.scored, sum(record.outcomes.failed.values())
        if planned is None and record is not None:
            planned = record.outcomes.planned
        return {
            "id": self.id, "name": self.name, "path": str(self.files.results), "state": state,
            "phase": record.phase if record and state == "running" else None,
            "reason": (record.reason or record.ended_by) if record else None,
            "started_at": record.started_at if record else None, "ended_at": record.ended_at if record else None,
            "seconds": _seconds(record, self.files, is_running=state == "running"),
            "planned": planned, "scored": scored, "failed": failed,
            "unresolved": max(0, planned - scored - failed) if planned is not None else None,
            "mean_reward": census.mean_reward, "pass_at": summary.pass_at,
            "model": (record and record.policy_model_name) or summary.model,
            "agents": sorted(census.counts["agents"]), "settings": _settings(record),
            "command": record.command if record else None, "indexed": summary.indexed, "problems": problems,
            "is_live": self.is_live, "has": summary.has,
        }  # fmt: skip

    def _problems(self, is_running: bool) -> Iterator[Problem]:
        if self.index.fault:
            yield self._problem(self.index.fault)
        if self._record is None and self._record_seen is not None:
            message = "the record of the run is not readable, so its settings are not shown."
            yield Problem(file=str(self.files.record), line=None, message=message)
        yield from self.index.problems(is_running=is_running)
        yield from self.notes.problems()

    def _problem(self, message: str) -> Problem:
        return Problem(file=str(self.files.results), line=None, message=message)


def _seconds(record: RunRecord | None, files: RunFiles, *, is_running: bool) -> float | None:
    """Return the duration of all sessions together, of the latest one up to now if it is still running.

    If the latest session was killed, its last event counts as its end.
    """
    if record is None:
        return None
    ends = [moment_of(session.ended_at) for session in record.earlier_sessions]
    ends.append(datetime.now(UTC) if is_running else moment_of(record.ended_at) or last_event_at(files))
    sessions = zip((*record.earlier_sessions, record), ends, strict=True)
    seconds = [each for each in starmap(_seconds_of, sessions) if each is not None]
    return sum(seconds) if seconds else None


def _seconds_of(session: Session, ended_at: datetime | None) -> float | None:
    """Return the duration of a session, or None if it was killed and its end is unknown."""
    started_at = moment_of(session.started_at)
    return max(0.0, (ended_at - started_at).total_seconds()) if started_at and ended_at else None


def _settings(record: RunRecord | None) -> Mapping[str, object]:
    """Return a run's recorded settings that are not empty, keyed by dotted name."""
    settings: dict[str, object] = {}
    waiting: list[tuple[str, object]] = [("", {**record.settings, "models": record.models})] if record else []
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += [(f"{name}.{key}" if name else str(key), each) for key, each in reversed(value.items())]
        elif value is not None and value != {}:
            settings[name] = value
    return settings

"""Which tasks of an earlier run are done, and which are owed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import read_lines
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.rollout import (
    ATTEMPT_INDEX_KEY,
    FAILURE_CLASS_KEY,
    ROLLOUT_INDEX_KEY,
    TASK_INDEX_KEY,
    TERMINAL_KEY,
)

logger = logging.getLogger(__name__)

MAX_ATTEMPTS_ENV_VAR = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"


class TaskKey(NamedTuple):
    """Which repeat of which task."""

    task: int
    repeat: int

    @classmethod
    def of(cls, row: dict[str, Any]) -> TaskKey:
        """The key that every materialized row and every result carries."""
        return cls(row[TASK_INDEX_KEY], row[ROLLOUT_INDEX_KEY])


def max_attempts() -> int:
    """How often a task may fail before it is left alone."""
    text = os.environ.get(MAX_ATTEMPTS_ENV_VAR) or "3"
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{MAX_ATTEMPTS_ENV_VAR}={text}: expected a number from 1.")
    return int(text)


class FailedAttempt(NamedTuple):
    """An earlier failure of a task."""

    cause: str
    is_terminal: bool


@dataclass
class EarlierRun:
    """What an earlier run left behind."""

    scored: set[TaskKey] = field(default_factory=set)
    failures: dict[TaskKey, list[FailedAttempt]] = field(default_factory=dict)
    given_up: dict[TaskKey, str] = field(default_factory=dict)
    """Tasks that are not tried again, with the cause of their last failure."""

    @classmethod
    def read(cls, files: RunFiles) -> EarlierRun:
        """Read what the run's tasks came to; a torn last line is cut off, so its task is run again.

        Lines of tasks that the run does not plan are left alone.
        """
        limit = max_attempts()
        earlier = cls()
        scored = {key for key, _ in _keyed_rows(files.results)}
        for key, row in _keyed_rows(files.failures):
            attempt = FailedAttempt(str(row.get(FAILURE_CLASS_KEY)), bool(row.get(TERMINAL_KEY)))
            earlier.failures.setdefault(key, []).append(attempt)
        for key, _ in _keyed_rows(files.materialized):
            attempts = earlier.failures.get(key, [])
            if key in scored:
                earlier.scored.add(key)
            elif len(attempts) >= limit or any(attempt.is_terminal for attempt in attempts):
                earlier.given_up[key] = attempts[-1].cause
        if strangers := len(scored) - len(earlier.scored):
            logger.warning("%s: %d tasks of it are not in %s", files.results, strangers, files.materialized)
        return earlier

    def owed(self, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The tasks still to be run, numbered by attempt."""
        for row in rows:
            key = TaskKey.of(row)
            if key in self.scored or key in self.given_up:
                continue
            if attempts := self.failures.get(key):
                row[ATTEMPT_INDEX_KEY] = len(attempts)
            yield row


def _keyed_rows(path: Path) -> Iterator[tuple[TaskKey, dict[str, Any]]]:
    _cut_torn_line(path)
    for line in read_lines(path) if path.exists() else ():
        try:
            yield TaskKey.of(line.row), line.row
        except KeyError as error:
            raise DataError(
                f"{path}:{line.number}: no {error}, so it is not known whose rollout this is. Remove the line, or "
                "choose another output."
            ) from error


def _cut_torn_line(path: Path) -> None:
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        file.seek(0, os.SEEK_END)
        size = file.tell()
        tail_start = size
        tail = b""
        while tail_start and b"\n" not in tail:
            step = min(max(1 << 16, len(tail)), tail_start)
            tail_start -= step
            file.seek(tail_start)
            tail = file.read(step) + tail
        whole = tail.rfind(b"\n") + 1
        rest = tail[whole:]
        if not rest:
            return
        if _is_json(rest):
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        else:
            file.truncate(tail_start + whole)


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True

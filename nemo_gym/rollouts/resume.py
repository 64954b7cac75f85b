"""Which tasks of an earlier run are done, and which are owed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.rollout import (
    ATTEMPT_INDEX_KEY,
    FAILURE_CLASS_KEY,
    ROLLOUT_INDEX_KEY,
    TASK_INDEX_KEY,
    TERMINAL_KEY,
)

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
    return int(os.environ.get(MAX_ATTEMPTS_ENV_VAR, "3"))


@dataclass
class EarlierRun:
    """What an earlier run left behind."""

    scored: set[TaskKey] = field(default_factory=set)
    failures: Counter[TaskKey] = field(default_factory=Counter)
    given_up: dict[TaskKey, str] = field(default_factory=dict)
    """Tasks that are not tried again, with the cause of their last failure."""

    @classmethod
    def read(cls, files: RunFiles) -> EarlierRun:
        """Read results and failures; a torn last line is cut off, so its task is run again."""
        earlier = cls()
        _cut_torn_line(files.results)
        _cut_torn_line(files.failures)
        if files.results.exists():
            earlier.scored = {TaskKey.of(row) for row in read_rows(files.results)}
        if files.failures.exists():
            limit = max_attempts()
            for row in read_rows(files.failures):
                key = TaskKey.of(row)
                earlier.failures[key] += 1
                if row.get(TERMINAL_KEY) or earlier.failures[key] >= limit:
                    earlier.given_up[key] = str(row.get(FAILURE_CLASS_KEY))
        for key in earlier.scored:
            earlier.given_up.pop(key, None)
        return earlier

    def owed(self, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The tasks still to be run, numbered by attempt."""
        for row in rows:
            key = TaskKey.of(row)
            if key in self.scored or key in self.given_up:
                continue
            if self.failures[key]:
                row[ATTEMPT_INDEX_KEY] = self.failures[key]
            yield row


def _cut_torn_line(path: Path) -> None:
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        file.seek(0, os.SEEK_END)
        size = file.tell()
        tail_start = size
        tail = b""
        while tail_start and b"\n" not in tail:
            step = min(1 << 16, tail_start)
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

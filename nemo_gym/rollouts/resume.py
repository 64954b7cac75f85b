"""The tasks of an earlier run: which are done, and which are still to be run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym.errors import ConfigError, DataError, InvalidTask
from nemo_gym.jsonl import read_lines
from nemo_gym.rollouts.job import AttemptSettings, RunFiles
from nemo_gym.rollouts.numbering import DigestSet, digest_of
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.usage import Usage
from nemo_gym.schemas.row import Row, TaskKey

logger = logging.getLogger(__name__)

MAX_ATTEMPTS_ENV_VAR = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
MESSAGE_CHARACTERS = 300


class KeySet:
    """A set of task keys that takes eight bytes per key."""

    def __init__(self, keys: Iterable[TaskKey] = ()) -> None:
        self._digests = DigestSet(map(self._digest, keys))

    def __contains__(self, key: TaskKey) -> bool:
        return len(self._digests) > 0 and self._digest(key) in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    @staticmethod
    def _digest(key: TaskKey) -> int:
        return digest_of(b"%d-%d" % key)


def max_attempts(settings: AttemptSettings | None = None) -> int:
    """Return how often a task may fail before it is no longer retried."""
    if settings is not None and settings.max_attempts is not None:
        return settings.max_attempts
    text = os.environ.get(MAX_ATTEMPTS_ENV_VAR) or "3"
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{MAX_ATTEMPTS_ENV_VAR}={text}: expected an integer of at least 1.")
    return int(text)


class Failures(NamedTuple):
    """The failed attempts of one task."""

    attempts: int
    cause: str
    """The cause of the last attempt."""
    message: str
    is_final: bool
    """Whether an attempt reported that a retry cannot succeed, or that the row is invalid."""


@dataclass
class EarlierRun:
    """The scored rollouts and the failed attempts of an earlier run."""

    scored: KeySet = field(default_factory=KeySet)
    failures: dict[TaskKey, Failures] = field(default_factory=dict)
    """The failures of each task with a failed attempt, even if a later attempt was scored."""
    limit: int = 1
    """The number of failed attempts after which a rollout is not tried again."""
    reward_sum: float = 0.0
    rewards: int = 0
    """The number of rewards in `reward_sum`."""
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def read(cls, files: RunFiles, limit: int, *, retries_invalid: bool = False) -> EarlierRun:
        """Read the outcomes from the run's files. Cut off incomplete last lines, so that their tasks run again.

        If `retries_invalid` is set, invalid rows run again, because they may have been corrected.
        """
        for path in (files.results, files.failures, files.ungraded, files.materialized):
            cut_torn_line(path)
        earlier = cls(limit=limit)
        earlier.scored = KeySet(earlier._rewarded(files.results))
        earlier.failures = failures_in(files.failures, usage=earlier.usage, retries_invalid=retries_invalid)
        return earlier

    def _rewarded(self, results: Path) -> Iterator[TaskKey]:
        """Yield the keys of the scored rollouts, and add up their rewards and tokens."""
        for key, row in keyed_rows(results):
            self.usage.add(row)
            if (reward := row.reward) is not None:
                self.reward_sum += reward
                self.rewards += 1
            yield key

    def count(self, rows: Iterable[Row]) -> Summary:
        """Return the initial summary of a run that resumes with these tasks."""
        summary = Summary(reward_sum=self.reward_sum, rewards=self.rewards, usage=self.usage)
        for row in rows:
            key = row.key
            summary.planned += 1
            if key in self.scored:
                summary.scored += 1
            elif (failures := self.failures.get(key)) and self._is_given_up(failures):
                summary.failed_by_cause[failures.cause] += 1
                summary.given_up += 1
            elif failures:
                summary.failed_before[failures.cause] += 1
        summary.kept = summary.scored
        if unmatched := len(self.scored) - summary.scored:
            logger.warning("%d rollouts scored earlier do not belong to a task of this run", unmatched)
        return summary

    def owed(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows that still have to run, each with the number of its next attempt."""
        if not self.scored and not self.failures:
            yield from rows
            return
        for row in rows:
            key = row.key
            if key in self.scored:
                continue
            failures = self.failures.get(key)
            if failures is None:
                yield row
            elif not self._is_given_up(failures):
                yield row.of_attempt(failures.attempts)

    def cause_of(self, row: Row) -> str | None:
        """Return why a task's last attempt failed, or None if no attempt has failed."""
        failures = self.failures.get(row.key) if self.failures else None
        return failures.cause if failures else None

    def given_up(self) -> Iterator[tuple[TaskKey, Failures]]:
        """Yield each task that is not tried again, with its failures."""
        for key, failures in self.failures.items():
            if key not in self.scored and self._is_given_up(failures):
                yield key, failures

    def _is_given_up(self, failures: Failures) -> bool:
        return failures.is_final or failures.attempts >= self.limit


def failures_in(path: Path, *, usage: Usage | None = None, retries_invalid: bool = False) -> dict[TaskKey, Failures]:
    """Return the failed attempts in a file, grouped by task, and add their tokens to `usage`."""
    found: dict[TaskKey, Failures] = {}
    for key, row in keyed_rows(path):
        if usage is not None:
            usage.add(row)
        cause = str(row.failure_class)
        before = found.get(key)
        is_invalid = cause == InvalidTask.failure_class
        found[key] = Failures(
            attempts=before.attempts + 1 if before else 1,
            cause=cause,
            message=(row.failure_message or "")[:MESSAGE_CHARACTERS],
            is_final=bool(before and before.is_final) or row.is_terminal or (is_invalid and not retries_invalid),
        )
    return found


def keyed_rows(path: Path) -> Iterator[tuple[TaskKey, Row]]:
    """Yield the rows of a run's file with their keys. A missing file counts as empty."""
    for line in read_lines(path) if path.exists() else ():
        row = Row(line.row)
        try:
            yield row.key, row
        except KeyError as error:
            raise DataError(
                f"{path}:{line.number}: {error} is missing, so the rollout's task is unknown. Remove the line, or "
                "choose another output."
            ) from error


def cut_torn_line(path: Path) -> None:
    """Remove a last line that a crash left incomplete, or add its newline if only that is missing."""
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

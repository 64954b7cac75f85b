"""The tasks of an earlier run: which are done, and which are still to be run."""

from __future__ import annotations

import logging
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import ConfigError, InvalidTask
from nemo_gym.jsonl import JsonObject, read_lines, read_raw_lines
from nemo_gym.rollouts.job import AttemptSettings, RunFiles
from nemo_gym.rollouts.ledger import events_in
from nemo_gym.rollouts.numbering import in_order
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.usage import Tokens, Usage
from nemo_gym.schemas.row import Row, TaskKey, key_at_end, key_of

logger = logging.getLogger(__name__)

REPEAT_BITS = 20
SPREADING = 0x9E3779B97F4A7C15
"""An odd number whose multiples are spread evenly: 2**64 divided by the golden ratio."""
MAX_ATTEMPTS_ENV_VAR = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"


class KeySet:
    """A set of task keys that takes eight bytes per key."""

    def __init__(self, keys: Iterable[TaskKey] = ()) -> None:
        self._digests = array("Q", (digest for digest, _ in groupby(in_order(map(self._digest, keys)))))

    def __contains__(self, key: TaskKey) -> bool:
        if not self._digests:
            return False
        digest = self._digest(key)
        place = bisect_left(self._digests, digest)
        return place < len(self._digests) and self._digests[place] == digest

    def __len__(self) -> int:
        return len(self._digests)

    @staticmethod
    def _digest(key: TaskKey) -> int:
        # Multiplying by an odd number maps different keys of up to 2**44 tasks to different values, and spreads them.
        return (key[0] << REPEAT_BITS | key[1]) * SPREADING & (1 << 64) - 1


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
        """Read the outcomes from the ledger, which must agree with the run's files.

        If `retries_invalid` is set, invalid rows run again, because they may have been corrected.
        """
        earlier = cls(limit=limit)
        earlier._add_scored(events_in(files.ledger, "results"))
        failures = events_in(files.ledger, "failures")
        earlier.failures = failures_in(failures, usage=earlier.usage, retries_invalid=retries_invalid)
        return earlier

    def _add_scored(self, ended: Iterable[JsonObject]) -> None:
        """Add the keys, the rewards and the tokens of the scored rollouts."""
        # Add up plain numbers, because there may be millions of rollouts.
        tokens: dict[str, list[int]] = {}
        rollouts = 0

        def keys() -> Iterator[TaskKey]:
            nonlocal rollouts
            for event in ended:
                if (reward := event.get("reward")) is not None:
                    self.reward_sum += reward
                    self.rewards += 1
                if used := event.get("usage"):
                    rollouts += 1
                    for model, (given, cached, output) in used.items():
                        known = tokens.setdefault(model, [0, 0, 0])
                        known[0] += given
                        known[1] += cached
                        known[2] += output
                yield TaskKey(event["task"], event["repeat"])

        self.scored = KeySet(keys())
        self.usage = Usage({model: Tokens(*counts) for model, counts in tokens.items()}, rollouts)
        self.usage.unknown = len(self.scored) - rollouts

    def summary(self, planned: int, keys: Iterable[TaskKey] | None = None) -> Summary:
        """Return the initial summary of a run that resumes with so many planned rollouts.

        Only rollouts among `keys` count. None means that all earlier rollouts are still planned.
        """
        summary = Summary(planned=planned, reward_sum=self.reward_sum, rewards=self.rewards, usage=self.usage)
        if keys is None:
            summary.scored = len(self.scored)
            failed = [each for key, each in self.failures.items() if key not in self.scored]
        else:
            failed = []
            for key in keys:
                if key in self.scored:
                    summary.scored += 1
                elif key in self.failures:
                    failed.append(self.failures[key])
        for failures in failed:
            if self._is_given_up(failures):
                summary.failed_by_cause[failures.cause] += 1
                summary.given_up += 1
            else:
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


def failures_in(
    ended: Iterable[JsonObject], *, usage: Usage | None = None, retries_invalid: bool = False
) -> dict[TaskKey, Failures]:
    """Return the failed attempts by task, given their events, and add their tokens to `usage`."""
    found: dict[TaskKey, Failures] = {}
    for event in ended:
        key, cause = TaskKey(event["task"], event["repeat"]), str(event.get("cause"))
        if usage is not None:
            used = {model: Tokens(*counts) for model, counts in event.get("usage", {}).items()}
            usage.add(used, is_scored=False)
        before = found.get(key)
        is_final = event.get("is_final", False) or (cause == InvalidTask.failure_class and not retries_invalid)
        found[key] = Failures(
            attempts=before.attempts + 1 if before else 1,
            cause=cause,
            message=event.get("message") or "",
            is_final=is_final or bool(before and before.is_final),
        )
    return found


def keys_in(materialized: Path) -> Iterator[TaskKey]:
    """Yield the keys of the planned rollouts. Rows are parsed only if their key is not at their end."""
    return (key_at_end(raw, materialized, number) for number, raw in read_raw_lines(materialized))


def keyed_rows(path: Path) -> Iterator[tuple[TaskKey, Row]]:
    """Yield the rows of a run's file with their keys. A missing file counts as empty."""
    for line in read_lines(path) if path.exists() else ():
        row = Row(line.row)
        yield key_of(row, path, line.number), row

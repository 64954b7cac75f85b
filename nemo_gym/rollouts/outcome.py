"""How a task ended: scored, failed, or unresolved. Exactly one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nemo_gym.schemas.rollout import AGENT_REF_KEY


class Outcome(StrEnum):
    """What became of a task."""

    SCORED = "scored"
    FAILED = "failed"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class Record:
    """A task that ended, with the line to be written for it."""

    outcome: Outcome
    row: dict[str, Any]
    """The result, or the failure; what an unresolved task answered is written nowhere."""
    reward: float | None = None
    cause: str | None = None
    """The failure class of a failed task."""
    may_retry: bool = False
    """Whether a failed task may well succeed if it is begun anew at once."""
    retry_after_s: float | None = None
    """How long the server that failed asks to be left alone."""

    @property
    def agent(self) -> str:
        """The agent that ran it."""
        return str((self.row.get(AGENT_REF_KEY) or {}).get("name"))


@dataclass
class Summary:
    """planned = scored + failed + unresolved, at the end of a run; tasks are counted, whatever attempts they took."""

    planned: int = 0
    scored: int = 0
    unresolved: int = 0
    failed_by_cause: Counter[str] = field(default_factory=Counter)
    """A task with several failures counts by the last one."""
    reward_sum: float = 0.0
    kept: int = 0
    """How many of the scored were there already when the run began."""
    given_up: int = 0
    """How many of the failed were not tried, because they had failed too often when the run began."""
    repeated: int = 0
    """How many failed attempts of this run were followed by another one."""
    failed_before: Counter[str] = field(default_factory=Counter)
    """Tasks that failed by this cause, and are to be tried again or are being so."""
    never_ended: int = 0
    """How many tasks were still under way, or not begun, when the run stopped."""

    @property
    def failed(self) -> int:
        """All failures together."""
        return sum(self.failed_by_cause.values())

    @property
    def finished(self) -> int:
        """How many tasks are accounted for."""
        return self.scored + self.failed + self.unresolved

    @property
    def mean_reward(self) -> float | None:
        """Over the tasks that this run scored."""
        fresh = self.scored - self.kept
        return self.reward_sum / fresh if fresh else None

    def repeat(self, record: Record, *, failed_before: str | None = None) -> None:
        """Take in a failed attempt that is followed by another one."""
        self.repeated += 1
        self._no_longer(failed_before)
        self.failed_before[_cause_of(record)] += 1

    def count(self, record: Record, *, failed_before: str | None = None) -> None:
        """Take one more ended task in; `failed_before` is the cause of its attempt before this one."""
        self._no_longer(failed_before)
        if record.outcome is Outcome.SCORED:
            self.scored += 1
            self.reward_sum += record.reward or 0.0
        elif record.outcome is Outcome.FAILED:
            self.failed_by_cause[_cause_of(record)] += 1
        elif failed_before is not None:
            # An answer that asks not to be kept leaves the task as it was.
            self.failed_by_cause[failed_before] += 1
        else:
            self.unresolved += 1

    def close(self) -> None:
        """Tasks that never ended are unresolved, or stay failed where an attempt of theirs did."""
        self.never_ended = self.planned - self.finished
        self.unresolved += self.never_ended - self.failed_before.total()
        self.failed_by_cause += self.failed_before
        self.failed_before.clear()

    def _no_longer(self, failed_before: str | None) -> None:
        if failed_before is not None:
            self.failed_before[failed_before] -= 1


def _cause_of(record: Record) -> str:
    return record.cause or "rollout_failed"

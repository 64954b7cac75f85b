"""How a task ended: scored, failed, or unresolved. Exactly one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nemo_gym.schemas.rollout import AGENT_REF_KEY, FAILURE_MESSAGE_KEY


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

    @property
    def agent(self) -> str:
        """The agent that ran it."""
        return str((self.row.get(AGENT_REF_KEY) or {}).get("name"))


@dataclass
class Summary:
    """planned = scored + failed + unresolved, at the end of a run."""

    planned: int = 0
    scored: int = 0
    unresolved: int = 0
    failed_by_cause: Counter[str] = field(default_factory=Counter)
    first_messages: dict[str, str] = field(default_factory=dict)
    """Of each cause, what the first failure of this run said."""
    reward_sum: float = 0.0
    kept: int = 0
    """How many of the scored were there already when the run began."""
    never_ended: int = 0
    """How many of the unresolved were still under way, or not begun, when the run stopped."""

    @property
    def failed(self) -> int:
        """All failures together."""
        return sum(self.failed_by_cause.values())

    @property
    def finished(self) -> int:
        """How many tasks have ended."""
        return self.scored + self.failed + self.unresolved

    @property
    def mean_reward(self) -> float | None:
        """Over the tasks that this run scored."""
        fresh = self.scored - self.kept
        return self.reward_sum / fresh if fresh else None

    def count(self, record: Record) -> None:
        """Take one more ended task in."""
        if record.outcome is Outcome.SCORED:
            self.scored += 1
            self.reward_sum += record.reward or 0.0
        elif record.outcome is Outcome.FAILED:
            cause = record.cause or "rollout_failed"
            self.failed_by_cause[cause] += 1
            self.first_messages.setdefault(cause, str(record.row.get(FAILURE_MESSAGE_KEY, "")))
        else:
            self.unresolved += 1

    def close(self) -> None:
        """Tasks that never ended are unresolved."""
        self.never_ended = self.planned - self.finished
        self.unresolved += self.never_ended

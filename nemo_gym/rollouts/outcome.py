"""Outcomes of a task: scored, failed or unresolved."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from nemo_gym.http.reply_cache import Counts
from nemo_gym.metrics.binary import has_no_answer
from nemo_gym.rollouts.usage import Tokens, Usage, tokens_of
from nemo_gym.schemas.row import Row

_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|(?<!\.py:)(?<!\d)\d+(\.\d+)?")
"""A regex for numbers that differ between occurrences of one failure: ports, counts and ids. It does not match the
line numbers of source files, because they identify the cause."""
_QUOTED_VALUE = re.compile(
    # Match `answer: 'x'`, but not `KeyError: 'x'`, because a missing key identifies the cause.
    r"""(?<!Error): (?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    # Match the values in pydantic's messages.
    r"|\binput_value=.*?, input_type=\w+"
)


class Outcome(StrEnum):
    """The outcome of a task. An unresolved task has neither a score nor a failure."""

    SCORED = "scored"
    FAILED = "failed"
    UNRESOLVED = "unresolved"


class Timing(NamedTuple):
    """The time that one attempt took, and its tool calls."""

    began_at: float
    """Seconds since the epoch."""
    seconds: float
    phases: Mapping[str, float]
    """Seconds of the agent's calls by phase: `seed`, `model`, `tools` and `verify`.

    Calls that overlap count in full, so the sum may exceed `seconds`. Empty if the agent reported nothing.
    """
    tools: Mapping[str, tuple[int, int]]
    """The numbers of calls and of failed calls of each tool, as counted by the agent."""


@dataclass
class Record:
    """An ended task, with the row to write for it."""

    outcome: Outcome
    row: Row
    """The row of the result or of the failure. The row of an unresolved task is not written."""
    reward: float | None = None
    cause: str | None = None
    """The failure class of a failed task."""
    may_retry: bool = False
    """Whether an immediate retry of a failed task may succeed."""
    retry_after_s: float | None = None
    """Seconds to wait before a retry, from `Retry-After`."""
    is_ungraded: bool = False
    """Whether an unresolved task has ended, and is graded as soon as the other rollouts of its task have ended."""
    timing: Timing | None = None
    """None if the collector itself ended the attempt."""

    @cached_property
    def tokens(self) -> Mapping[str, Tokens]:
        """The tokens by model. Empty if the endpoint did not report them."""
        return tokens_of(self.row)


@dataclass
class Summary:
    """The outcomes of a run. At its end, planned = scored + failed + unresolved.

    Each task counts once, regardless of the number of its attempts.
    """

    planned: int = 0
    scored: int = 0
    unresolved: int = 0
    failed_by_cause: Counter[str] = field(default_factory=Counter)
    """Failed tasks by the cause of their last failure."""
    reward_sum: float = 0.0
    """The sum of all rewards, including those of earlier runs with the same output file."""
    rewards: int = 0
    """The number of rewards in `reward_sum`."""
    unanswered: int = 0
    """Rollouts that this run scored although the verifier found no answer in them."""
    kept: int = 0
    """Tasks that were already scored when the run started."""
    given_up: int = 0
    """Failed tasks that this run did not try, because they had failed too often or a retry could not succeed."""
    repeated: int = 0
    """Failed attempts of this run that were followed by a retry."""
    failed_before: Counter[str] = field(default_factory=Counter)
    """Tasks with a failed attempt whose retry is pending or running, by the cause of the failure."""
    never_ended: int = 0
    """Tasks that were running or not started when the run stopped."""
    usage: Usage = field(default_factory=Usage)
    """The tokens of all rollouts and failed attempts, including those of earlier runs with the same output file."""
    engine_calls: dict[str, dict[str, int]] = field(default_factory=dict)
    """The calls of each model server with several engines: `kept` with their rollout's engine, or `moved`."""
    model_cache: Counts | None = None
    """The number of model calls of this run that the cache answered, and the number that it did not answer.

    None if there is no cache, or if the run has not ended.
    """
    ended_by: str | None = None
    """The limit or request that kept this run from starting further rollouts; None if all could start."""
    began_at: float | None = None
    """The monotonic time at which the first rollout started; None before that."""
    finished_earlier: int = 0
    """The number of tasks with an outcome when the first rollout started."""

    def begin(self) -> None:
        """Start the clock. Call this when the first rollout starts, because reading earlier results may take long."""
        if self.began_at is None:
            self.began_at, self.finished_earlier = time.monotonic(), self.finished

    @property
    def failed(self) -> int:
        return sum(self.failed_by_cause.values())

    @property
    def finished(self) -> int:
        """The number of tasks with an outcome."""
        return self.scored + self.failed + self.unresolved

    @property
    def mean_reward(self) -> float | None:
        """The mean of the rewards in `reward_sum`; None if there are no rewards yet."""
        return self.reward_sum / self.rewards if self.rewards else None

    @property
    def rate(self) -> float:
        """The number of rollouts that this run has ended per second."""
        ended = 0 if self.began_at is None else self.finished - self.never_ended - self.finished_earlier
        return ended / max(time.monotonic() - (self.began_at or 0), 1e-9)

    @property
    def left_s(self) -> float | None:
        """The seconds until all rollouts have ended at this rate; None if none has ended yet."""
        return (self.planned - self.finished) / self.rate if self.rate else None

    @property
    def has_no_answers(self) -> bool:
        """Whether this run scored rollouts, and the verifier found no answer in any of them."""
        return 0 < self.unanswered == self.scored - self.kept

    @property
    def failed_share(self) -> float:
        """The share of failed tasks among the scored and failed ones."""
        return self.failed / (self.scored + self.failed) if self.failed else 0.0

    def repeat(self, record: Record, *, failed_before: str | None = None) -> None:
        """Count a failed attempt that is followed by a retry."""
        self.repeated += 1
        self.usage.add(record.tokens, is_scored=False)
        self._no_longer(failed_before)
        self.failed_before[_cause_of(record)] += 1

    def count(self, record: Record, *, failed_before: str | None = None) -> None:
        """Count an ended task. `failed_before` is the cause of its previous failed attempt."""
        self._no_longer(failed_before)
        self.usage.add(record.tokens, is_scored=record.row.failure_class is None)
        if record.outcome is Outcome.SCORED:
            self.scored += 1
            self.reward_sum += record.reward or 0.0
            self.rewards += 1
            self.unanswered += has_no_answer(record.row.fields)
        elif record.outcome is Outcome.FAILED:
            self.failed_by_cause[_cause_of(record)] += 1
        elif failed_before is not None:
            # A result with `_ng_no_persist` does not change the outcome of earlier attempts.
            self.failed_by_cause[failed_before] += 1
        else:
            self.unresolved += 1

    def reopen(self, cause: str | None) -> None:
        """Count a task without a score as running again. `cause` is the cause of its last failure, if it failed."""
        if cause is None:
            self.unresolved -= 1
        else:
            self.failed_by_cause[cause] -= 1
            # Drop causes whose count is now 0, so that they are no longer shown.
            self.failed_by_cause = +self.failed_by_cause
            self.failed_before[cause] += 1

    def close(self) -> None:
        """Count each task that has not ended: as failed if one of its attempts has failed, otherwise as unresolved."""
        self.never_ended = self.planned - self.finished
        self.unresolved += self.never_ended - self.failed_before.total()
        self.failed_by_cause += self.failed_before
        self.failed_before.clear()

    def _no_longer(self, failed_before: str | None) -> None:
        if failed_before is not None:
            self.failed_before[failed_before] -= 1


def _cause_of(record: Record) -> str:
    return record.cause or "rollout_failed"


def shape_of(message: str) -> str:
    """Return a failure's message without numbers and quoted values, which differ each time the same failure occurs."""
    return _NUMBER.sub("#", _QUOTED_VALUE.sub(": …", message))

"""Retries of a rollout after a lost or overloaded server, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from nemo_gym.context.deadline import deadline_in, time_left_s
from nemo_gym.errors import ServerLost
from nemo_gym.http.backoff import Backoff
from nemo_gym.rollouts.job import AttemptSettings
from nemo_gym.rollouts.outcome import Record
from nemo_gym.rollouts.runner import Runner
from nemo_gym.schemas.row import Row

LONGEST_PAUSE_S = 60.0
GROWTH = 4.0


class AttemptLimits(NamedTuple):
    """The limits on the number, duration and pace of attempts."""

    most: int
    """The total number of attempts, including those of earlier runs."""
    timeout_s: float
    """The time limit for all attempts of this run, including the pauses between them."""
    backoff: Backoff

    @classmethod
    def of(cls, settings: AttemptSettings, most: int) -> AttemptLimits:
        return cls(most, settings.rollout_timeout_s, Backoff(settings.retry_pause_s, GROWTH, LONGEST_PAUSE_S))


async def run_to_its_end(
    runner: Runner,
    row: Row,
    limits: AttemptLimits,
    *,
    on_repeat: Callable[[Record], None],
    on_lost: Callable[[], Awaitable[None]] | None = None,
) -> Record:
    """Run a task with retries. `on_repeat` receives each failed attempt that is followed by a retry.

    `on_lost` is awaited after an attempt in which a server was lost, before the attempt is counted.
    """
    attempt = row.attempt
    number = 0
    with deadline_in(limits.timeout_s):
        while True:
            record = await runner.run(row)
            if on_lost is not None and record.cause == ServerLost.failure_class:
                await on_lost()
            attempt, number = attempt + 1, number + 1
            if not record.may_retry or attempt >= limits.most:
                return record
            pause_s = limits.backoff.pause_s(number, record.retry_after_s)
            left_s = time_left_s()
            if left_s is not None and left_s <= pause_s:
                return record
            on_repeat(record)
            # Give each attempt its own rollout id, so that servers and files can distinguish the attempts.
            row = row.of_attempt(attempt)
            await asyncio.sleep(pause_s)

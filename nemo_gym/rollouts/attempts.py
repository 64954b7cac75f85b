"""A task to its end: a rollout that met a lost or an overloaded server is begun anew, within bounds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from nemo_gym.http.deadline import deadline_in, time_left_s
from nemo_gym.rollouts.outcome import Record
from nemo_gym.rollouts.runner import Runner
from nemo_gym.schemas.rollout import ATTEMPT_INDEX_KEY

LONGEST_PAUSE_S = 60.0
GROWTH = 4.0


class AttemptLimits(NamedTuple):
    """How often a task is tried, and how fast."""

    most: int
    """Attempts in all, those of earlier runs included."""
    timeout_s: float
    """For all attempts of this run, and the pauses between them."""
    first_pause_s: float

    def pause_s(self, number: int, asked_s: float | None) -> float:
        """Before the next attempt, `number` of this run's having failed (from 1); never in step with other tasks."""
        growing = min(self.first_pause_s * GROWTH ** (number - 1), LONGEST_PAUSE_S)
        return max(growing * random.uniform(0.5, 1.5), min(asked_s or 0.0, LONGEST_PAUSE_S))


async def run_to_its_end(
    runner: Runner, row: dict[str, Any], limits: AttemptLimits, *, on_repeat: Callable[[Record], None]
) -> Record:
    """Run a task, and again where that may help; `on_repeat` gets each failed attempt that another one follows."""
    attempt = int(row.get(ATTEMPT_INDEX_KEY) or 0)
    number = 0
    with deadline_in(limits.timeout_s):
        while True:
            record = await runner.run(row)
            attempt, number = attempt + 1, number + 1
            if not record.may_retry or attempt >= limits.most:
                return record
            pause_s = limits.pause_s(number, record.retry_after_s)
            left_s = time_left_s()
            if left_s is not None and left_s <= pause_s:
                return record
            on_repeat(record)
            # A row of its own: its number is the rollout's identity, with the servers as in the files.
            row = {**row, ATTEMPT_INDEX_KEY: attempt}
            await asyncio.sleep(pause_s)

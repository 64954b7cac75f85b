"""Timers for thousands of calls, few of which fire. Timers of the same tick share one timer of the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

TICK_S = 0.005
"""Seconds in a tick. Timers that are due within the same tick fire together."""
FARTHEST_S = 10.0
"""Maximum delay in seconds, so that few timers are pending at once. To wait longer, set the timer again."""


class Sleeper(Protocol):
    def wake(self) -> None:
        """Act when the timer fires. If the delay exceeded `FARTHEST_S`, the timer fires early: set it again."""


class Timers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._sleepers: dict[int, set[Sleeper]] = {}

    def set(self, sleeper: Sleeper, in_s: float) -> int:
        """Wake the sleeper in `in_s` seconds, or up to a tick later. A delay above `FARTHEST_S` is shortened to it.

        To cancel the timer, pass the returned tick to `clear`.
        """
        now = time.monotonic()
        tick = int((now + min(max(in_s, 0.0), FARTHEST_S)) / TICK_S) + 1
        sleepers = self._sleepers.get(tick)
        if sleepers is None:
            sleepers = self._sleepers[tick] = set()
            self.loop.call_later(tick * TICK_S - now, self._fire, tick)
        sleepers.add(sleeper)
        return tick

    def clear(self, sleeper: Sleeper, tick: int) -> None:
        sleepers = self._sleepers.get(tick)
        if sleepers is not None:
            sleepers.discard(sleeper)

    def _fire(self, tick: int) -> None:
        for sleeper in self._sleepers.pop(tick):
            sleeper.wake()

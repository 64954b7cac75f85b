"""Timers for thousands of calls, of which hardly any rings: what is due together shares one of the event loop's."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

TICK_S = 0.005
"""What is due within so many seconds rings together."""
FARTHEST_S = 10.0
"""Nothing is set farther ahead: whoever has more time looks again then, and few timers are open at once."""


class Sleeper(Protocol):
    """Whoever is to be woken."""

    def wake(self) -> None:
        """It is time, or `FARTHEST_S` have gone by."""


class Timers:
    """The alarms of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._sleepers: dict[int, set[Sleeper]] = {}

    def set(self, sleeper: Sleeper, in_s: float) -> int:
        """Wake it after so many seconds, a tick later at most; `clear` wants what is returned."""
        now = time.monotonic()
        tick = int((now + min(max(in_s, 0.0), FARTHEST_S)) / TICK_S) + 1
        sleepers = self._sleepers.get(tick)
        if sleepers is None:
            sleepers = self._sleepers[tick] = set()
            self.loop.call_later(tick * TICK_S - now, self._ring, tick)
        sleepers.add(sleeper)
        return tick

    def clear(self, sleeper: Sleeper, tick: int) -> None:
        """Do not wake it any more."""
        sleepers = self._sleepers.get(tick)
        if sleepers is not None:
            sleepers.discard(sleeper)

    def _ring(self, tick: int) -> None:
        for sleeper in self._sleepers.pop(tick):
            sleeper.wake()

"""Wait for conditions of other threads and processes, which do not send a signal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WITHIN_S = 100.0


def until(
    condition: Callable[[], object],
    describe: Callable[[], object] = str,
    within_s: float = WITHIN_S,
    pause_s: float = 0.02,
) -> None:
    """Wait for a condition. Fail with a description of the state if it is not met in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(pause_s)


async def async_until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Wait for a condition without blocking the event loop. Raise `TimeoutError` if it is not met in time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)

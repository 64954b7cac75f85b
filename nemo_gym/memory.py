"""Adaptive garbage collection: reference counting frees most objects, so collections adapt to how much they find.

By default the interpreter collects whenever allocations exceed deallocations by a threshold. With thousands of
rollouts in progress that is constantly, and each collection scans all of their objects and finds nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from contextlib import suppress

CHECK_INTERVAL_S = 1.0
MIN_THRESHOLD, MAX_THRESHOLD = 20_000, 1_000_000
"""Bounds of the net allocations that trigger a collection: the lower one at first, then adapted to the results."""
MIN_GARBAGE_SHARE = 0.1
"""A collection was worthwhile if this share of the net allocations was garbage."""
OLD_INTERVAL, OLDEST_INTERVAL = 5, 10
"""Interpreter thresholds for the two older generations, as a number of collections of the next younger one."""


def settle_memory(*, collects: bool = True) -> None:
    """Freeze existing objects and leave collections to `tend_memory`; call it once a process is ready.

    Without `collects`, freeze garbage too: a process that has only imported modules has little of it.
    """
    if collects:
        gc.collect()
    with suppress(OSError, AttributeError):
        # Returns memory that only the start needed, if the C library supports it.
        ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()
    gc.set_threshold(MAX_THRESHOLD, OLD_INTERVAL, OLDEST_INTERVAL)


async def tend_memory() -> None:
    """Collect garbage until cancelled: half as often after a useless collection, otherwise twice as often."""
    threshold = MIN_THRESHOLD
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        allocations = gc.get_count()[0]
        if allocations < threshold:
            continue
        was_useful = gc.collect() >= allocations * MIN_GARBAGE_SHARE
        threshold = max(MIN_THRESHOLD, threshold // 2) if was_useful else min(MAX_THRESHOLD, threshold * 2)

"""When a process looks for garbage: once its memory has grown, for requests leave little that counting does not free.

The interpreter looks whenever so many more objects were made than freed. With thousands of rollouts under way that is
all the time, each look goes through everything that they hold, and finds nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

YOUNG, OLDER, OLDEST = 1_000_000, 5, 10
"""So many more objects made than freed, or looks at the younger ones, start a look nevertheless."""
LOOK_EVERY_S = 1.0
GROWTH = 1.1
LEAST_GROWTH_BYTES = 8 * 1024 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def settle_memory() -> None:
    """Set aside what is there for good, and look for garbage seldom; called once a server is ready."""
    gc.collect()
    _give_back()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDEST)


async def tend_memory() -> None:
    """Look for garbage whenever this process has grown by a tenth and some more, for as long as it runs."""
    known = _resident_bytes()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if _resident_bytes() > known * GROWTH + LEAST_GROWTH_BYTES:
            gc.collect()
            known = _resident_bytes()


def _give_back() -> None:
    """What was only needed to start goes back to the system, where its C library knows how."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        # Elsewhere than on Linux the interpreter's own looks have to do.
        return 0

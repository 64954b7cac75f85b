"""When a process looks for garbage: as often as there is some to be found, since counting frees most of what is made.

The interpreter looks whenever so many more objects were made than freed. With thousands of rollouts under way that is
all the time: each look goes through everything that they hold, and finds nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from contextlib import suppress

LOOK_EVERY_S = 1.0
FEWEST, MOST = 20_000, 1_000_000
"""So many more objects made than freed start a look: the fewest at first, then by what the last look has found."""
WORTH_SHARE = 0.1
"""A look at so many objects was worth it if this share of them was garbage."""
OLDER, OLDEST = 5, 10
"""Looks of the interpreter's own, at `MOST`, between its looks at what is older."""


def settle_memory() -> None:
    """Set aside what is there for good, and leave the looking to `tend_memory`; called once a process is ready."""
    gc.collect()
    with suppress(OSError, AttributeError):
        # What was only needed to start goes back to the system, where its C library knows how.
        ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()
    gc.set_threshold(MOST, OLDER, OLDEST)


async def tend_memory() -> None:
    """Look for garbage for as long as the process runs: twice as seldom after a look in vain, else twice as often."""
    wanted = FEWEST
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        made = gc.get_count()[0]
        if made < wanted:
            continue
        was_worth_it = gc.collect() >= made * WORTH_SHARE
        wanted = max(FEWEST, wanted // 2) if was_worth_it else min(MOST, wanted * 2)

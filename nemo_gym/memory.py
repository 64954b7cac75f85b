"""The memory of a long-running process: collect garbage adaptively, and return unused memory to the system.

Reference counting frees most objects. By default, the interpreter also collects garbage whenever allocations exceed
deallocations by a threshold. With thousands of rollouts in progress, it would collect constantly, scan all of their
objects and find no garbage. So `tend_memory` collects less often as long as it finds little garbage.

The C library keeps freed memory that is between other objects. After long requests, which arrive in pieces, this
memory can be as large as the requests, so a large process returns it explicitly. By default, the library returns freed
memory at the end of its heap at once. But the next long request needs this memory again, and the system must first
fill every page with zeros. So a process keeps some free memory at the end of the heap.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

CHECK_INTERVAL_S = 1.0
MIN_THRESHOLD, MAX_THRESHOLD = 20_000, 1_000_000
"""Bounds of the threshold for a collection, in net allocations. It starts at the lower bound and adapts."""
MIN_GARBAGE_SHARE = 0.1
"""The share of net allocations that must be garbage for a collection to count as useful."""
OLD_INTERVAL, OLDEST_INTERVAL = 5, 10
"""Interpreter thresholds for the two older generations, as a number of collections of the next younger one."""
LARGE_BYTES = 192 * 1024 * 1024
"""The resident memory above which unused memory is returned. Smaller processes have little unused memory."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of the parameters of `mallopt`, from glibc's `malloc.h`."""
KEPT_BYTES = 32 * 1024 * 1024
"""The free memory that a process smaller than `LARGE_BYTES` keeps at the end of the heap."""
LARGEST_IN_HEAP_BYTES = 8 * 1024 * 1024
"""Objects above this size are allocated outside the heap, so that freeing one returns its memory to the system."""


def settle_memory(*, collects: bool = True) -> None:
    """Exempt existing objects from garbage collection, and leave collections to `tend_memory`.

    Call this once, when the process is ready. If `collects` is False, do not collect garbage first: a process that has
    only imported modules contains little garbage.
    """
    if collects:
        gc.collect()
    return_unused_memory()
    _keep_freed_memory()
    gc.freeze()
    gc.set_threshold(MAX_THRESHOLD, OLD_INTERVAL, OLDEST_INTERVAL)


async def tend_memory() -> None:
    """Collect garbage and return unused memory until cancelled.

    Collect half as often after a collection that found little garbage, and twice as often after one that found much.
    """
    threshold = MIN_THRESHOLD
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        if resident_bytes() > LARGE_BYTES:
            return_unused_memory()
        allocations = gc.get_count()[0]
        if allocations < threshold:
            continue
        was_useful = gc.collect() >= allocations * MIN_GARBAGE_SHARE
        threshold = max(MIN_THRESHOLD, threshold // 2) if was_useful else min(MAX_THRESHOLD, threshold * 2)


def return_unused_memory() -> None:
    """Return freed memory to the system, if the C library supports it. This takes a few milliseconds."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _keep_freed_memory() -> None:
    """Keep freed memory for the next long request, if the C library supports it."""
    with suppress(OSError, AttributeError):
        adjust = ctypes.CDLL(None).mallopt
        adjust(M_TRIM_THRESHOLD, KEPT_BYTES)
        adjust(M_MMAP_THRESHOLD, LARGEST_IN_HEAP_BYTES)


def resident_bytes() -> int:
    """Return the size of this process's resident memory; 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

"""The memory of a process that serves for hours."""

from __future__ import annotations

import subprocess
import sys

import pytest

FREED_BETWEEN_OTHERS = """
import asyncio, ctypes
from nemo_gym import memory
memory.CHECK_INTERVAL_S = 0.01

async def shrinks():
    # Pieces as they arrive from a socket, every second of which is freed.
    pieces = [bytes(60_000) for _ in range(8_000)]
    del pieces[::2]
    held = memory.resident_bytes()
    tending = asyncio.create_task(memory.tend_memory())
    while memory.resident_bytes() > held * 0.75:
        await asyncio.sleep(0.01)
    tending.cancel()
    return held > memory.LARGE_BYTES

assert asyncio.run(asyncio.wait_for(shrinks(), 100))
"""

FREED_AT_THE_END = """
from nemo_gym import memory

memory.settle_memory()
before = memory.resident_bytes()
pieces = [bytes(60_000) for _ in range(400)] + [bytes(1_000_000)]
held = memory.resident_bytes() - before
del pieces
assert memory.resident_bytes() - before > held * 0.9
"""


def succeeds(program: str) -> bool:
    return subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc returns memory on demand")
def test_much_freed_memory_returns_to_the_system():
    assert succeeds(FREED_BETWEEN_OTHERS)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps memory on demand")
def test_some_freed_memory_is_kept_for_the_next_request():
    assert succeeds(FREED_AT_THE_END)

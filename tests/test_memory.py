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


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc returns memory on demand")
def test_freed_memory_returns_to_the_system():
    assert subprocess.run([sys.executable, "-c", FREED_BETWEEN_OTHERS], timeout=60, check=False).returncode == 0

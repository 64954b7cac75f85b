"""CPU time that does not depend on the machine: measured against a loop of known work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOOP_STEPS = 400_000
USUAL_LOOP_S = 0.02
"""What the loop takes on the machine for which the limits of the tests were chosen."""


@dataclass
class CpuTime:
    """CPU time of a block in seconds, as that machine would have taken; `seconds` is known at the block's end."""

    seconds: float = 0.0


@contextmanager
def cpu_time() -> Iterator[CpuTime]:
    """Measure the CPU time of a block, and the machine's pace before and after it."""
    took = CpuTime()
    before_s = _loop_s()
    began_at = time.process_time()
    yield took
    spent_s = time.process_time() - began_at
    took.seconds = spent_s * USUAL_LOOP_S / max(before_s, _loop_s())


def _loop_s() -> float:
    began_at = time.process_time()
    number = 0
    for step in range(LOOP_STEPS):
        number += step
    return time.process_time() - began_at

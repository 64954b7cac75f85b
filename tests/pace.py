"""How the time of a function grows with its input, which does not depend on the machine's pace."""

from __future__ import annotations

import time
from collections.abc import Callable

FACTOR = 8
"""How many times as long the longer text is. The work of a quadratic function then grows 64 times."""
MOST_GROWTH = 24.0
ROUNDS = 6
NOTHING_S = 0.004
"""CPU time that is too short to be compared: no work that grows with the square of a long text takes so little."""


def assert_linear(work: Callable[[str], object], piece: str, length: int, *, start: str = "", end: str = "") -> None:
    """Check that the work on a text grows like the text: `start`, then `piece` for `length` characters, then `end`.

    Raises:
        AssertionError: In each of some rounds, the CPU time grew much more than the text did.
    """
    growths = []
    for _ in range(ROUNDS):
        short_s, long_s = (
            _cpu_s(work, start + piece * (characters // len(piece)) + end) for characters in (length // FACTOR, length)
        )
        if long_s <= max(NOTHING_S, short_s * MOST_GROWTH):
            return
        growths.append(long_s / short_s)
    raise AssertionError(f"{FACTOR} times as long a text takes {min(growths):.0f} times as long: {piece!r}")


def _cpu_s(work: Callable[[str], object], text: str) -> float:
    began_at = time.process_time()
    work(text)
    return time.process_time() - began_at

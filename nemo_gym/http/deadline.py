"""Until when the current task's rollout may go on; what is left of it travels along every call between our servers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ends_at: ContextVar[float | None] = ContextVar("nemo_gym_deadline", default=None)


def time_left_s() -> float | None:
    """Seconds until the rollout under way here has to end, negative afterwards; None where nothing bounds it."""
    ends_at = _ends_at.get()
    return None if ends_at is None else ends_at - time.monotonic()


@contextmanager
def deadline_in(seconds: float | None) -> Iterator[None]:
    """Let everything awaited inside end within so many seconds; a deadline that is nearer already stays."""
    known = _ends_at.get()
    if seconds is None:
        yield
        return
    ends_at = time.monotonic() + seconds
    token = _ends_at.set(ends_at if known is None else min(known, ends_at))
    try:
        yield
    finally:
        _ends_at.reset(token)


@contextmanager
def grace_period(seconds: float) -> Iterator[None]:
    """Let what is awaited inside have so many seconds, whether or not the rollout's time is over: to clear up."""
    token = _ends_at.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends_at.reset(token)


def told_to_callee(left_s: float) -> float:
    """What a callee is told of the time left: a little less, so that it ends first and can say where it was."""
    return left_s - min(0.5, 0.05 * left_s)


def read_time_left(value: bytes) -> float | None:
    """The seconds that a caller's header tells; None where they cannot be read."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None

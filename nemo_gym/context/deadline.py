"""The deadline of the current task's rollout. Every call between nemo_gym's servers sends the remaining time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Token

from nemo_gym.context.current import Work, begin_work, current_work, end_work

CLOCK_SLACK_S = 0.005
"""Seconds by which a timer may fire too early."""
LATE_CLEANUP_S = 0.05
"""Seconds for which clean-up is awaited after the deadline."""
_cleaning: set[asyncio.Future[object]] = set()
"""The running clean-up, because the event loop itself does not keep tasks alive."""
GRACE_S = 5.0
"""Seconds that clean-up may take, such as the deletion of a session."""


def time_left_s() -> float | None:
    """Return the seconds until the deadline, negative after it. Return None if there is no deadline."""
    ends_at = current_work().ends_at
    return None if ends_at is None else ends_at - time.monotonic()


class deadline_in:  # noqa: N801 - reads as what it does: `with deadline_in(5):`
    """Context manager that sets a deadline `seconds` from now, unless an earlier one is set or `seconds` is None."""

    __slots__ = ("_seconds", "_token")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._token: Token[Work] | None = None

    def __enter__(self) -> None:
        if self._seconds is not None:
            work, ends_at = current_work(), time.monotonic() + self._seconds
            if work.ends_at is None or ends_at < work.ends_at:
                self._token = begin_work(work._replace(ends_at=ends_at))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            end_work(self._token)


@contextmanager
def grace_period(seconds: float = GRACE_S) -> Iterator[None]:
    """Allow `seconds` for cleaning up, even after the deadline."""
    before = current_work()
    token = begin_work(before._replace(ends_at=time.monotonic() + seconds, waits=[]))
    try:
        yield
    finally:
        end_work(token)


async def to_the_end(cleanup: Coroutine[object, object, object]) -> None:
    """Await a coroutine that cleans up, even if this task is cancelled, for example at the rollout's deadline.

    After the deadline, await it only briefly, and let it end in the background. Otherwise the caller times out, too,
    and blames this server, although this server waited for another.
    """
    cleaning = asyncio.ensure_future(cleanup)
    _cleaning.add(cleaning)
    cleaning.add_done_callback(_cleaned)
    left_s = time_left_s()
    if left_s is not None and left_s <= CLOCK_SLACK_S:
        await asyncio.wait({cleaning}, timeout=LATE_CLEANUP_S)
        return
    try:
        await asyncio.shield(cleaning)
    except asyncio.CancelledError:
        await cleaning
        raise


def _cleaned(cleaning: asyncio.Future[object]) -> None:
    _cleaning.discard(cleaning)
    if not cleaning.cancelled():
        # Retrieve the error, because asyncio would log it if it is not awaited after the deadline.
        cleaning.exception()


def time_left_for_callee(left_s: float) -> float:
    """Return a little less than the time left, so that the callee times out first and reports what it waited for.

    The difference must be longer than a busy event loop's delay. Otherwise the caller times out first, and its failure
    does not have the callee's reason.
    """
    return left_s - min(2.0, 0.05 * left_s)


def read_time_left(value: bytes) -> float | None:
    """Parse the remaining seconds in a caller's header. Return None if they are invalid."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None

"""Until when the current task's rollout may go on; what is left of it travels along every call between our servers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Token
from types import TracebackType
from typing import Self

from nemo_gym.errors import RolloutTimedOut
from nemo_gym.http.work import Work, begin_work, current_work, end_work

CLOCK_SLACK_S = 0.005
"""Timers may ring a little early, and what they end has ended for want of time all the same."""
GRACE_S = 5.0
"""Enough to let a server forget a session."""


def time_left_s() -> float | None:
    """Seconds until the rollout under way here has to end, negative afterwards; None where nothing bounds it."""
    ends_at = current_work().ends_at
    return None if ends_at is None else ends_at - time.monotonic()


class deadline_in:  # noqa: N801 - reads as what it does: `with deadline_in(5):`
    """Let everything awaited inside end within so many seconds; a deadline that is nearer already stays.

    `None` leaves it as it is.
    """

    __slots__ = ("_seconds", "_token")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._token: Token[Work] | None = None

    def __enter__(self) -> None:
        if self._seconds is not None:
            before, ends_at = current_work(), time.monotonic() + self._seconds
            if before.ends_at is None or ends_at < before.ends_at:
                self._token = begin_work(Work(before.rollout_id, ends_at, before.waits, before.failures))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            end_work(self._token)


@contextmanager
def grace_period(seconds: float = GRACE_S) -> Iterator[None]:
    """Let what is awaited inside have so many seconds, whether or not the rollout's time is over: to clear up."""
    before = current_work()
    token = begin_work(Work(before.rollout_id, time.monotonic() + seconds, [], before.failures))
    try:
        yield
    finally:
        end_work(token)


class Wait:
    """What is awaited, for as long as it is; a wait that the rollout's end cut short stays, so that it can be told."""

    __slots__ = ("_beside", "trouble", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.trouble = ""
        """Why it had to be tried again."""
        self._beside = current_work().waits

    def __enter__(self) -> Self:
        if self._beside is not None:
            self._beside.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._beside is not None and not isinstance(error, asyncio.CancelledError | RolloutTimedOut):
            self._beside.remove(self)

    def __str__(self) -> str:
        return f"{self.what} ({self.trouble})" if self.trouble else self.what


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

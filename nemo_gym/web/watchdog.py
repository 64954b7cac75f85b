"""Checks of a running call: its deadline, its caller's connection, and the size and depth of its body."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Self

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from nemo_gym.context.deadline import CLOCK_SLACK_S
from nemo_gym.http.json_depth import is_deeper_than
from nemo_gym.web.answer import Answer, Rejection
from nemo_gym.web.call import Call
from nemo_gym.web.limits import CallLimits, too_deep, too_large
from nemo_gym.web.timers import Timers

GONE_CHECK_S = 2.0
"""Seconds before the first check for a caller that hung up. Most calls end earlier and need no check."""


class Watchdog:
    """A context manager that cancels the running task at the deadline, or when a long call's caller has hung up.

    Inside the `with` block, the app must receive through `receive`. If the watchdog cancels the task, the block
    suppresses this cancellation and sets `has_fired`. One timer serves both checks, because most calls need neither.
    """

    # Class-level defaults for rarely used attributes, so most calls pay nothing for them.
    has_fired = False
    caller_has_gone = False
    """Whether the watchdog cancelled the task because the caller hung up."""
    _timer: int | None = None
    _listener: asyncio.Task[Message] | None = None
    _chunks: list[bytes] | None = None
    _body_has_ended = False
    _is_receiving = False
    _has_cancelled = False

    def __init__(
        self,
        call: Call,
        answer: Answer,
        receive: Receive,
        *,
        limits: CallLimits,
        timers: Timers,
        ends_at: float | None,
    ) -> None:
        self._call = call
        self._answer = answer
        self._receive = receive
        self._limits = limits
        self._timers = timers
        self._ends_at = math.inf if ends_at is None else ends_at
        self._bytes_left = limits.bytes_at(call.path)
        if call.may_be_json:
            self._chunks = []

    def __enter__(self) -> Self:
        self._task: asyncio.Task[object] | None = asyncio.current_task(self._timers.loop)
        self._sleep()
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> bool:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timers.clear(self, self._timer)
        if self._listener is not None:
            self._listener.cancel()
        if not self._has_cancelled or task is None:
            return False
        # Let any other cancellation, such as a shutdown, propagate.
        is_own_alone = task.uncancel() == 0
        self.has_fired = is_own_alone and isinstance(error, asyncio.CancelledError)
        return self.has_fired

    def wake(self) -> None:
        """Check the deadline and the caller; a timer calls this."""
        self._timer = None
        if self._ends_at - time.monotonic() <= CLOCK_SLACK_S:
            self._cancel()
            return
        # Do not listen while the app is receiving, because the app then receives the disconnect itself.
        is_late = time.monotonic() - self._call.began_at >= GONE_CHECK_S - CLOCK_SLACK_S
        if is_late and self._listener is None and self._body_has_ended and not self._is_receiving:
            self._listener = asyncio.ensure_future(self._receive())
            self._listener.add_done_callback(self._heard)
        self._sleep()

    async def receive(self) -> Message:
        """Return the caller's next message. Raise `HTTPException` if the body is too large or nested too deeply."""
        if self._listener is not None:
            return await asyncio.shield(self._listener)
        self._is_receiving = True
        try:
            message = await self._receive()
        finally:
            self._is_receiving = False
        if message["type"] == "http.request":
            self._body_has_ended = not message.get("more_body", False)
            self._check(message.get("body", b""))
        return message

    def _sleep(self) -> None:
        left_s = self._ends_at - time.monotonic()
        if self._listener is None:
            left_s = min(left_s, GONE_CHECK_S)
        if left_s != math.inf:
            self._timer = self._timers.set(self, left_s)

    def _heard(self, listener: asyncio.Task[Message]) -> None:
        if listener.cancelled() or listener.exception() is not None or self._task is None:
            return
        if listener.result()["type"] == "http.disconnect" and not self._answer.has_begun:
            self.caller_has_gone = True
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._task.cancel()

    def _check(self, chunk: bytes) -> None:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise self._rejected(413, "too large", too_large(self._limits.bytes_at(self._call.path)))
        if self._chunks is None:
            return
        self._chunks.append(chunk)
        if self._body_has_ended:
            chunks, self._chunks = self._chunks, None
            most = self._limits.depth_at(self._call.path)
            if is_deeper_than(chunks, most):
                raise self._rejected(400, "nested too deeply", too_deep(most))

    def _rejected(self, status: int, title: str, detail: str) -> HTTPException:
        self._answer.rejection = Rejection(status, title, detail)
        return HTTPException(status, detail)

"""Looks after one call: what it may bring, until when it may take, and whether its caller is still there."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.types import Message

from nemo_gym.http.deadline import CLOCK_SLACK_S
from nemo_gym.http.local import LOCAL_SCOPE_KEY
from nemo_gym.http.problems import MEDIA_TYPE
from nemo_gym.servers.nesting import nests_deeper

if TYPE_CHECKING:
    from nemo_gym.servers.calls import Call

MEBIBYTE = 1024 * 1024
NEVER_JSON = (b"multipart/", b"application/octet-stream", b"image/", b"audio/", b"video/")
"""Bodies of these kinds may hold any bytes, brackets too."""
GONE_CHECK_S = 2.0
"""Most calls have been answered by then, and nobody has to watch whether their caller is still there."""


@dataclass(frozen=True)
class CallLimits:
    """How much a server takes on at once."""

    in_flight: int = 16_384
    """Calls at work at the same time; further ones wait."""
    queued: int = 16_384
    """Calls that wait; further ones are refused with 503 and may come again."""
    body_bytes: int = 256 * MEBIBYTE
    """The longest body of a request."""
    body_depth: int = 100
    """How deep the brackets of a JSON body nest; parsers and validators recurse, and so would what answers it."""


class Refusal(NamedTuple):
    """Why a body was not taken."""

    status: int
    title: str
    detail: str

    @property
    def body(self) -> bytes:
        return orjson.dumps({"type": "about:blank", **self._asdict()})

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"content-type", MEDIA_TYPE.encode())]


class CallWatch:
    """Cancels a call when its time is over, and one that takes long once its caller has hung up.

    Of what the caller sends, only what the handler has not asked for is looked at: the end of the request is awaited
    in its place. One timer serves both ends, since most calls need neither.
    """

    __slots__ = (
        "_body_has_ended", "_bytes_left", "_call", "_check_s", "_chunks", "_ends_at", "_handler", "_is_receiving",
        "_limits", "_listener", "_loop", "_timer", "_was_cancelled", "caller_has_gone",
    )  # fmt: skip

    def __init__(self, call: Call, limits: CallLimits, left_s: float | None) -> None:
        self._call = call
        self._limits = limits
        self._bytes_left = limits.body_bytes
        self._chunks: list[bytes] | None = None if call.media_type.startswith(NEVER_JSON) else []
        self._handler = asyncio.current_task()
        self._body_has_ended = False
        self._is_receiving = False
        self._listener: asyncio.Task[Message] | None = None
        self._was_cancelled = False
        self.caller_has_gone = False
        self._loop = asyncio.get_running_loop()
        self._ends_at = math.inf if left_s is None else self._loop.time() + left_s
        # A caller in this process ends the call when it ends itself.
        self._check_s = math.inf if LOCAL_SCOPE_KEY in call.scope else GONE_CHECK_S
        self._timer: asyncio.TimerHandle | None = None
        self._look_again_in(self._check_s if left_s is None else max(0.0, min(self._check_s, left_s)))

    async def receive(self) -> Message:
        """What the handler receives."""
        if self._listener is not None:
            return await asyncio.shield(self._listener)
        self._is_receiving = True
        try:
            message = await self._call.receive()
        finally:
            self._is_receiving = False
        if message["type"] == "http.request":
            self._body_has_ended = not message.get("more_body", False)
            self._check(message.get("body", b""))
        return message

    def _check(self, chunk: bytes) -> None:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise self._refused(413, "too large", too_large(self._limits.body_bytes))
        if self._chunks is None:
            return
        self._chunks.append(chunk)
        if self._body_has_ended:
            text, self._chunks = b"".join(self._chunks), None
            if nests_deeper(text, self._limits.body_depth):
                raise self._refused(400, "nested too deep", too_deep(self._limits.body_depth))

    def _refused(self, status: int, title: str, detail: str) -> HTTPException:
        self._call.refusal = Refusal(status, title, detail)
        return HTTPException(status, detail)

    def _look(self) -> None:
        self._timer = None
        left_s = self._ends_at - self._loop.time()
        if left_s <= CLOCK_SLACK_S:
            self._cancel()
            return
        # While the handler receives, it will hear itself that the caller has gone.
        if self._listener is None and self._body_has_ended and not self._is_receiving:
            self._listener = asyncio.ensure_future(self._call.receive())
            self._listener.add_done_callback(self._heard)
        self._look_again_in(left_s if self._listener is not None else min(self._check_s, left_s))

    def _look_again_in(self, seconds: float) -> None:
        if seconds != math.inf:
            self._timer = self._loop.call_later(seconds, self._look)

    def _heard(self, listener: asyncio.Task[Message]) -> None:
        if listener.cancelled() or listener.exception() is not None or self._handler is None:
            return
        if listener.result()["type"] == "http.disconnect" and not self._call.has_begun_answer:
            self.caller_has_gone = True
            self._cancel()

    def _cancel(self) -> None:
        if self._handler is not None and not self._was_cancelled:
            self._was_cancelled = True
            self._handler.cancel()

    def take_back(self) -> bool:
        """Whether the cancellation was this watch's alone; then it has done its work."""
        was_cancelled, self._was_cancelled = self._was_cancelled, False
        return was_cancelled and self._handler is not None and self._handler.uncancel() == 0

    def end(self) -> None:
        """Stop watching."""
        if self._was_cancelled:
            # The handler ended in its own way all the same.
            self.take_back()
        self._handler = None
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()


def too_deep(most: int) -> str:
    return f"the brackets of a request's body may nest {most} deep here (max_request_depth), and these nest deeper"


def too_large(most_bytes: int) -> str:
    return f"a request's body may have {most_bytes} bytes here (max_request_bytes), and this one has more"

"""One call under way at a server: what it may bring, until when it may take, and what was answered."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from nemo_gym.calls.problems import MEDIA_TYPE, Problem
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.context.deadline import CLOCK_SLACK_S, read_time_left
from nemo_gym.errors import RolloutError
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.rollout import INPUT_AT_HEADER, TIME_LEFT_HEADER
from nemo_gym.web.json_depth import is_deeper_than

if TYPE_CHECKING:
    from nemo_gym.web.limits import CallLimits
    from nemo_gym.web.session_cookies import OpenSession
    from nemo_gym.web.timers import Timers

NEVER_JSON = (b"multipart/", b"application/octet-stream", b"image/", b"audio/", b"video/")
"""Bodies of these kinds may hold any bytes, brackets too."""
GONE_CHECK_S = 2.0
"""Most calls have been answered by then, and nobody has to watch whether their caller is still there."""
SET_COOKIE_SCOPE_KEY = "nemo_gym.set_cookie"
"""Where the scope holds a function that gives the `Set-Cookie` value, for answers made outside of the session."""
_TIME_LEFT = TIME_LEFT_HEADER.encode()
_INPUT_AT = INPUT_AT_HEADER.encode()


class Rejection(NamedTuple):
    """Why a call was not taken."""

    status: int
    title: str
    detail: str

    @property
    def body(self) -> bytes:
        return orjson.dumps({"type": "about:blank", **self._asdict()})

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"content-type", MEDIA_TYPE.encode())]


class Call:
    """What a server's app receives and sends.

    The call is cancelled when its time is over, and, where it takes long, once its caller has hung up. Of what the
    caller sends, only what the app has not asked for is looked at: the end of the request is awaited in its place.
    One alarm serves both ends, since most calls need neither.
    """

    # What few calls have stands here, and costs the others nothing.
    refusal: Rejection | None = None
    """Why the body was not taken; told where whatever read it could not cope with that."""
    secrets: SecretValues | None = None
    """What is hidden in what is told of failures; None looks at nothing."""
    session: OpenSession | None = None
    """The session whose cookie goes with the answer."""
    caller_has_gone = False
    status = 0
    """Of the answer; 0 until it has begun."""
    _task: asyncio.Task[object] | None = None
    _alarm: int | None = None
    _listener: asyncio.Task[Message] | None = None
    _chunks: list[bytes] | None = None
    _held: list[Message] | None = None
    _body_has_ended = False
    _is_receiving = False
    _is_stream = False
    _was_cancelled = False

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.began_at = time.monotonic()
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        """The last of each name."""
        self._receive = receive
        self._send = send

    # What the caller asks for

    @property
    def cookies(self) -> bytes | None:
        """The `Cookie` header; several are put together."""
        given = self.headers.get(b"cookie")
        if given is None or len(self.headers) == len(self.scope["headers"]):
            return given
        return b"; ".join(value for name, value in self.scope["headers"] if name == b"cookie")

    @property
    def body_bytes(self) -> int:
        """How long the body is, by what its caller says; 0 where that says nothing."""
        told = self.headers.get(b"content-length", b"")
        return int(told) if told.isdigit() else 0

    def ends_at(self) -> float | None:
        """When the rollout's time is over, by the monotonic clock; None where nothing bounds it."""
        told = self.headers.get(_TIME_LEFT)
        left_s = None if told is None else read_time_left(told)
        return None if left_s is None else self.began_at + left_s

    # Until when it may take

    def watch(self, limits: CallLimits, alarms: Timers, ends_at: float | None) -> None:
        """Let the running task be cancelled when its time is over or its caller has gone, and bound the body."""
        self._limits = limits
        self._bytes_left = limits.body_bytes
        if not self._is_unread and not self.headers.get(b"content-type", b"").lower().startswith(NEVER_JSON):
            self._chunks = []
        self._task = asyncio.current_task()
        self._alarms = alarms
        self._ends_at = math.inf if ends_at is None else ends_at
        self._sleep()

    def wake(self) -> None:
        """See whether it is time to end, and whether the caller is still there."""
        self._alarm = None
        if self._ends_at - time.monotonic() <= CLOCK_SLACK_S:
            self._cancel()
            return
        # While the app receives, it will hear itself that the caller has gone.
        is_late = time.monotonic() - self.began_at >= GONE_CHECK_S - CLOCK_SLACK_S
        if is_late and self._listener is None and self._body_has_ended and not self._is_receiving:
            self._listener = asyncio.ensure_future(self._receive())
            self._listener.add_done_callback(self._heard)
        self._sleep()

    def _sleep(self) -> None:
        left_s = self._ends_at - time.monotonic()
        if left_s > GONE_CHECK_S and self._listener is None:
            left_s = GONE_CHECK_S
        if left_s != math.inf:
            self._alarm = self._alarms.set(self, left_s)

    def _heard(self, listener: asyncio.Task[Message]) -> None:
        if listener.cancelled() or listener.exception() is not None or self._task is None:
            return
        if listener.result()["type"] == "http.disconnect" and not self.has_begun_answer:
            self.caller_has_gone = True
            self._cancel()

    @property
    def _is_unread(self) -> bool:
        # A long conversation, of which its caller has read everything before, and most model servers read nothing.
        return _INPUT_AT in self.headers and str(self.scope["path"]).endswith(RESPONSES_PATH)

    def _cancel(self) -> None:
        if self._task is not None and not self._was_cancelled:
            self._was_cancelled = True
            self._task.cancel()

    def take_back(self) -> bool:
        """Whether the cancellation was this call's own alone; then it has done its work."""
        was_cancelled, self._was_cancelled = self._was_cancelled, False
        return was_cancelled and self._task is not None and self._task.uncancel() == 0

    def end(self) -> None:
        """Stop watching."""
        if self._was_cancelled:
            # The app ended in its own way all the same.
            self.take_back()
        self._task = None
        if self._alarm is not None:
            self._alarms.clear(self, self._alarm)
        if self._listener is not None:
            self._listener.cancel()

    # What the app receives

    async def receive(self) -> Message:
        """The next message of the caller, within the limits of the watch."""
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

    def _check(self, chunk: bytes) -> None:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise self._refused(413, "too large", too_large(self._limits.body_bytes))
        if self._chunks is None:
            return
        self._chunks.append(chunk)
        if self._body_has_ended:
            text, self._chunks = b"".join(self._chunks), None
            if is_deeper_than(text, self._limits.body_depth):
                raise self._refused(400, "nested too deep", too_deep(self._limits.body_depth))

    def _refused(self, status: int, title: str, detail: str) -> HTTPException:
        self.refusal = Rejection(status, title, detail)
        return HTTPException(status, detail)

    # What is answered

    @property
    def has_begun_answer(self) -> bool:
        return self.status != 0

    async def send(self, message: Message) -> None:
        """Pass on what the app sends, with the session's cookie and without secrets."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.session is not None:
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", self.session.set_cookie())]
            if self.secrets is not None:
                self._is_stream = _is_event_stream(message)
        if self.secrets is None:
            await self._send(message)
        elif self.status < 400:
            if self._is_stream and message["type"] == "http.response.body":
                # Clients of a stream hear of failures in it.
                message = {**message, "body": self.secrets.mask_bytes(message.get("body", b""))}
            await self._send(message)
        else:
            await self._send_looked_through(message, self.secrets)

    async def _send_looked_through(self, message: Message, secrets: SecretValues) -> None:
        # What is told of a failure is held until it is whole, and looked through.
        self._held = [*(self._held or ()), message]
        if message["type"] != "http.response.body" or message.get("more_body", False):
            return
        start, *rest = self._held
        body = b"".join(each.get("body", b"") for each in rest if each["type"] == "http.response.body")
        headers = start.get("headers", [])
        if self.refusal is not None and self.status >= 500:
            self.status = self.refusal.status
            body, headers = self.refusal.body, [*_of_names(headers, {b"set-cookie"}), *self.refusal.headers]
        told = secrets.mask_bytes(body)
        if told != body or len(rest) > 1:
            others = [(name, value) for name, value in headers if name.lower() != b"content-length"]
            headers = [*others, (b"content-length", b"%d" % len(told))]
        await self._send({**start, "status": self.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": told})

    async def answer(self, status: int, media_type: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Answer in the app's place."""
        told = {"content-type": media_type, **(headers or {})}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        if self.session is None and SET_COOKIE_SCOPE_KEY in self.scope:
            raw.append((b"set-cookie", self.scope[SET_COOKIE_SCOPE_KEY]()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> None:
        """Say why it is not taken."""
        await self.answer(status, MEDIA_TYPE, Rejection(status, title, detail).body, headers)

    async def answer_error(self, error: RolloutError, headers: dict[str, str] | None = None) -> None:
        """Tell of a failure."""
        problem = Problem.of_error(error)
        await self.answer(problem.status, MEDIA_TYPE, problem.model_dump_json().encode(), headers)


def _is_event_stream(start: Message) -> bool:
    for name, value in start.get("headers", ()):
        if name.lower() == b"content-type":
            return bool(value.startswith(b"text/event-stream"))
    return False


def _of_names(headers: Iterable[tuple[bytes, bytes]], names: Container[bytes]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() in names]


def too_deep(most: int) -> str:
    return f"the brackets of a request's body may nest {most} deep here (max_request_depth), and these nest deeper"


def too_large(most_bytes: int) -> str:
    return f"a request's body may have {most_bytes} bytes here (max_request_bytes), and this one has more"

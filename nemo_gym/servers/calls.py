"""The outermost layer of a server: who may call, how many at once, for how long, and what became of each call."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from dataclasses import dataclass

import orjson
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.errors import Overloaded, RolloutError, RolloutTimedOut
from nemo_gym.http.deadline import deadline_in, read_time_left
from nemo_gym.http.problems import MEDIA_TYPE, Problem
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER, RUN_TOKEN_HEADER, TIME_LEFT_HEADER
from nemo_gym.servers.telemetry import MEDIA_TYPE as METRICS_MEDIA_TYPE
from nemo_gym.servers.telemetry import METRICS_PATH, OTHER_ROUTE, Telemetry

logger = logging.getLogger(__name__)

LIVENESS_PATHS = frozenset({"/", "/livez", "/readyz", "/healthz", "/health"})
RETRY_AFTER_S = 1
MEBIBYTE = 1024 * 1024
GONE_CHECK_S = 0.5
"""Most calls have been answered by then, and nobody has to watch whether their caller is still there."""

_TIME_LEFT = TIME_LEFT_HEADER.encode()
_RUN_TOKEN = RUN_TOKEN_HEADER.encode()


@dataclass(frozen=True)
class CallLimits:
    """How much a server takes on at once."""

    in_flight: int = 16_384
    """Calls at work at the same time; further ones wait."""
    queued: int = 16_384
    """Calls that wait; further ones are refused with 503 and may come again."""
    body_bytes: int = 256 * MEBIBYTE
    """The longest body of a request."""


class CallLayer:
    """Stands around a server's whole app.

    A call ends when its rollout's time is over, and when its caller has gone; a call too many waits, or hears that it
    may come again.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        server: str,
        telemetry: Telemetry,
        limits: CallLimits | None = None,
        run_token: str | None = None,
    ) -> None:
        self.app = app
        self.server = server
        self.telemetry = telemetry
        self.limits = limits or CallLimits()
        self.run_token = run_token
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_read = scope["method"] in ("GET", "HEAD")
        if is_read and scope["path"] in LIVENESS_PATHS:
            await self.app(scope, receive, send)
            return
        call = _Call(scope, receive, send)
        if self.run_token is not None and not secrets.compare_digest(call.run_token, self.run_token.encode()):
            await call.answer_problem(401, "no run token", f"{self.server} answers only calls of its own run")
            return
        if is_read and scope["path"] == METRICS_PATH:
            await call.answer(200, METRICS_MEDIA_TYPE, self.telemetry.text().encode())
            return
        if call.body_bytes > self.limits.body_bytes:
            await call.answer_problem(413, "too large", _too_large(self.limits.body_bytes))
            return
        if not await self._may_begin(call):
            return
        try:
            await self._serve(call)
        finally:
            self._leave()
            route = getattr(scope.get("route"), "path", OTHER_ROUTE)
            self.telemetry.count(route, call.status, time.monotonic() - call.began_at)

    async def _may_begin(self, call: _Call) -> bool:
        """Take a place, or wait for one; where there is no room to wait in, the call is answered: False."""
        telemetry = self.telemetry
        if telemetry.in_flight < self.limits.in_flight:
            telemetry.in_flight += 1
            return True
        if telemetry.queued >= self.limits.queued:
            telemetry.refused += 1
            told = f"{self.server} has {telemetry.in_flight} calls at work and {telemetry.queued} waiting"
            await call.answer_error(Overloaded(told, server=self.server), **{"retry-after": str(RETRY_AFTER_S)})
            return False
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        telemetry.queued += 1
        try:
            async with asyncio.timeout(call.time_left_s):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._leave()
            if not isinstance(error, TimeoutError):
                raise
            told = f"the rollout's time was over while {call.scope['path']} waited for a place at {self.server}"
            await call.answer_error(RolloutTimedOut(told, server=self.server))
            return False
        finally:
            telemetry.queued -= 1
            telemetry.queue_seconds += time.monotonic() - call.began_at
        return True

    def _leave(self) -> None:
        """Hand the place of a call that has ended to the next one that waits."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.telemetry.in_flight -= 1

    async def _serve(self, call: _Call) -> None:
        watch = _CallerWatch(call, self.limits.body_bytes)
        left_s = None if call.time_left_s is None else call.time_left_s - (time.monotonic() - call.began_at)
        over = asyncio.timeout(left_s)
        try:
            with deadline_in(left_s):
                async with over:
                    await self.app(call.scope, watch.receive, call.send)
        except TimeoutError:
            if not over.expired() or call.has_begun_answer:
                raise
            told = f"the rollout's time was over while {self.server} worked on {call.scope['path']}"
            logger.warning("%s", told)
            await call.answer_error(RolloutTimedOut(told, server=self.server))
        except asyncio.CancelledError:
            if not watch.caller_has_gone:
                raise
            # Ours to take back: it was not the server's end that cancelled this call.
            watch.take_back()
            self.telemetry.abandoned += 1
            logger.info("%s given up: its caller has gone", call.scope["path"])
        finally:
            watch.end()


class _Call:
    """One request: what its headers ask for, and what was answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.began_at = time.monotonic()
        self.status = 0
        self.time_left_s: float | None = None
        self.run_token = b""
        self.body_bytes = 0
        self._send = send
        for name, value in scope["headers"]:
            if name == b"content-length":
                self.body_bytes = int(value) if value.isdigit() else 0
            elif name == _TIME_LEFT:
                self.time_left_s = read_time_left(value)
            elif name == _RUN_TOKEN:
                self.run_token = value

    @property
    def has_begun_answer(self) -> bool:
        return self.status != 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def answer(self, status: int, media_type: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        told = {"content-type": media_type, **(headers or {})}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_problem(self, status: int, title: str, detail: str) -> None:
        body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        await self.answer(status, MEDIA_TYPE, orjson.dumps(body))

    async def answer_error(self, error: RolloutError, **headers: str) -> None:
        """Tell of a failure before anything was done, or where nothing will be done any more."""
        problem = Problem.of_error(error)
        if isinstance(error, Overloaded):
            headers[NOT_BEGUN_HEADER] = "1"
        await self.answer(problem.status, MEDIA_TYPE, problem.model_dump_json().encode(), headers)


class _CallerWatch:
    """Cancels a call that takes long once its caller has hung up.

    Only what the handler has not asked for is looked at: the end of the request is awaited in its place.
    """

    def __init__(self, call: _Call, most_bytes: int) -> None:
        self._call = call
        self._bytes_left = most_bytes
        self._most_bytes = most_bytes
        self._handler = asyncio.current_task()
        self._body_has_ended = False
        self._is_receiving = False
        self._listener: asyncio.Task[Message] | None = None
        self.caller_has_gone = False
        loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = loop.call_later(GONE_CHECK_S, self._listen)

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
            self._bytes_left -= len(message.get("body", b""))
            if self._bytes_left < 0:
                raise HTTPException(413, _too_large(self._most_bytes))
        return message

    def _listen(self) -> None:
        self._timer = None
        if self._is_receiving:
            # The handler itself will hear of it.
            return
        if not self._body_has_ended:
            self._timer = asyncio.get_running_loop().call_later(GONE_CHECK_S, self._listen)
            return
        self._listener = asyncio.ensure_future(self._call.receive())
        self._listener.add_done_callback(self._heard)

    def _heard(self, listener: asyncio.Task[Message]) -> None:
        if listener.cancelled() or listener.exception() is not None or self._handler is None:
            return
        if listener.result()["type"] == "http.disconnect" and not self._call.has_begun_answer:
            self.caller_has_gone = True
            self._handler.cancel()

    def take_back(self) -> None:
        """The cancellation has done its work."""
        if self._handler is not None:
            self._handler.uncancel()

    def end(self) -> None:
        """Stop watching."""
        self._handler = None
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()


def _too_large(most_bytes: int) -> str:
    return f"a request's body may have {most_bytes} bytes here (max_request_bytes), and this one has more"

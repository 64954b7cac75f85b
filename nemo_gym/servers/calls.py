"""The outermost layer of a server: who may call, how many at once, for how long, and what became of each call."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable, Container, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR, RUN_TOKEN_KEY
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.errors import Overloaded, RolloutError, RolloutTimedOut, ServerLost
from nemo_gym.http.deadline import deadline_in, noting_waits, read_time_left
from nemo_gym.http.problems import MEDIA_TYPE, Problem
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER, RUN_ID_HEADER, RUN_TOKEN_HEADER, TIME_LEFT_HEADER
from nemo_gym.servers.call_watch import CallLimits, CallWatch, Refusal, too_large
from nemo_gym.servers.in_process import OWN_CALL_SCOPE_KEY
from nemo_gym.servers.telemetry import MEDIA_TYPE as METRICS_MEDIA_TYPE
from nemo_gym.servers.telemetry import METRICS_PATH, OTHER_ROUTE, Telemetry

logger = logging.getLogger(__name__)

LIVENESS_PATHS = frozenset({"/", "/livez", "/readyz", "/healthz", "/health"})
RETRY_AFTER_S = 1
_TIME_LEFT = TIME_LEFT_HEADER.encode()
_RUN_ID = RUN_ID_HEADER.encode()
_RUN_TOKEN = RUN_TOKEN_HEADER.encode()


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
        run_id: str = "",
        admits: Callable[[Scope], bool] | None = None,
        secrets: SecretValues | None = None,
    ) -> None:
        """`admits` may let in a call without the run's token; `secrets` are hidden in what is told of failures."""
        self.app = app
        self.server = server
        self.telemetry = telemetry
        self.limits = limits or CallLimits()
        self.run_token = run_token
        self.run_id = run_id.encode()
        self.admits = admits
        self.secrets = secrets or SecretValues()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or OWN_CALL_SCOPE_KEY in scope:
            # A call of the server's own is part of one that has been let in, and has a place.
            await self.app(scope, receive, send)
            return
        is_read = scope["method"] in ("GET", "HEAD")
        if is_read and scope["path"] in LIVENESS_PATHS:
            await self.app(scope, receive, send)
            return
        call = Call(scope, receive, send, self.secrets)
        if self.run_token is not None and not self._knows(call):
            await call.answer_problem(401, "no run token", _wants_token(self.server), {"www-authenticate": "Bearer"})
            return
        if self.run_id and call.run_id and call.run_id != self.run_id:
            # The port was another run's before: whatever this caller began is gone with it.
            told = f"{self.server} belongs to another run; the one that this call is meant for has ended"
            await call.answer_error(ServerLost(told, server=self.server))
            return
        if is_read and scope["path"] == METRICS_PATH:
            await call.answer(200, METRICS_MEDIA_TYPE, self.telemetry.text().encode())
            return
        if call.body_bytes > self.limits.body_bytes:
            await call.answer_problem(413, "too large", too_large(self.limits.body_bytes))
            return
        if not await self._may_begin(call):
            return
        try:
            await self._serve(call)
        finally:
            self._leave()
            route = getattr(scope.get("route"), "path", OTHER_ROUTE)
            self.telemetry.count(route, call.status, time.monotonic() - call.began_at)

    def _knows(self, call: Call) -> bool:
        """Whether the caller belongs to the run; what shows it goes no further."""
        expected = (self.run_token or "").encode()
        # Clients of model endpoints have one place for a key, and no header of ours.
        for given in (call.run_token, call.bearer_token):
            if hmac.compare_digest(given, expected):
                call.scope["headers"] = [each for each in call.scope["headers"] if given not in each[1]]
                return True
        return self.admits is not None and self.admits(call.scope)

    async def _may_begin(self, call: Call) -> bool:
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

    async def _serve(self, call: Call) -> None:
        left_s = None if call.time_left_s is None else call.time_left_s - (time.monotonic() - call.began_at)
        watch = CallWatch(call, self.limits, left_s)
        try:
            with deadline_in(left_s), noting_waits() as waits:
                await self.app(call.scope, watch.receive, call.send)
        except asyncio.CancelledError:
            # Where it is ours it is to be taken back: it was not the server's end that cancelled this call.
            if not watch.take_back():
                raise
            if watch.caller_has_gone:
                self.telemetry.abandoned += 1
                logger.info("%s given up: its caller has gone", call.scope["path"])
                return
            told = f"the rollout's time was over while {self.server} worked on {call.scope['path']}"
            if waits:
                told += f", waiting for {waits[-1]}"
            logger.warning("%s", told)
            error = RolloutTimedOut(told, server=self.server)
            if call.has_begun_answer:
                raise error from None
            await call.answer_error(error)
        finally:
            watch.end()


class Call:
    """One request: what its headers ask for, and what was answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, secrets: SecretValues) -> None:
        self.scope = scope
        self.receive = receive
        self.refusal: Refusal | None = None
        """Why the body was not taken; told where whatever read it could not cope with that."""
        self.began_at = time.monotonic()
        self.status = 0
        self.time_left_s: float | None = None
        self.run_token = b""
        self.run_id = b""
        self.bearer_token = b""
        self.body_bytes = 0
        self.media_type = b""
        self._send = send
        self._secrets = secrets
        self._held: list[Message] = []
        self._is_stream = False
        for name, value in scope["headers"]:
            if name == b"content-length":
                self.body_bytes = int(value) if value.isdigit() else 0
            elif name == _TIME_LEFT:
                self.time_left_s = read_time_left(value)
            elif name == b"content-type":
                self.media_type = value.lower()
            elif name == _RUN_ID:
                self.run_id = value
            elif name == _RUN_TOKEN:
                self.run_token = value
            elif name == b"authorization" and value[:7].lower() == b"bearer ":
                self.bearer_token = value[7:].strip()

    @property
    def has_begun_answer(self) -> bool:
        return self.status != 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._is_stream = _is_event_stream(message)
        if self.status < 400:
            if self._is_stream and message["type"] == "http.response.body":
                # Clients of a stream hear of failures in it.
                message = {**message, "body": self._secrets.mask_bytes(message.get("body", b""))}
            await self._send(message)
            return
        # What is told of a failure is held until it is whole, and looked through.
        self._held.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            for each in self._looked_through():
                await self._send(each)

    def _looked_through(self) -> tuple[Message, Message]:
        start, *rest = self._held
        body = b"".join(each.get("body", b"") for each in rest if each["type"] == "http.response.body")
        headers = start.get("headers", [])
        if self.refusal is not None and self.status >= 500:
            self.status = self.refusal.status
            body, headers = self.refusal.body, [*_of_names(headers, {b"set-cookie"}), *self.refusal.headers]
        told = self._secrets.mask_bytes(body)
        if told != body or len(rest) > 1:
            others = [(name, value) for name, value in headers if name.lower() != b"content-length"]
            headers = [*others, (b"content-length", b"%d" % len(told))]
        return (
            {**start, "status": self.status, "headers": headers},
            {"type": "http.response.body", "body": told},
        )

    async def answer(self, status: int, media_type: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        told = {"content-type": media_type, **(headers or {})}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_problem(
        self, status: int, title: str, detail: str, headers: dict[str, str] | None = None
    ) -> None:
        await self.answer(status, MEDIA_TYPE, Refusal(status, title, detail).body, headers)

    async def answer_error(self, error: RolloutError, **headers: str) -> None:
        """Tell of a failure before anything was done, or where nothing will be done any more."""
        problem = Problem.of_error(error)
        if isinstance(error, Overloaded):
            headers[NOT_BEGUN_HEADER] = "1"
        await self.answer(problem.status, MEDIA_TYPE, problem.model_dump_json().encode(), headers)


def _is_event_stream(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in start.get("headers", [])
    )


def _of_names(headers: Iterable[tuple[bytes, bytes]], names: Container[bytes]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() in names]


def _wants_token(server: str) -> str:
    return (
        f"{server} answers only calls of its own run. Send the run's token as the header {RUN_TOKEN_HEADER}, or as "
        f"'Authorization: Bearer …'. The commands take it from +{RUN_TOKEN_KEY}=…, from env.yaml or from "
        f"{RUN_TOKEN_ENV_VAR}; on the machine where the run was started they find it by themselves."
    )

"""A server's connections: limits on slow, silent and oversized requests, and a reserve for health checks.

The limits are checked once per second for all connections together, because a timer per request would cost more. A
check counts seconds instead of reading the clock, so that callers do not time out because the event loop was blocked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from nemo_gym.errors import Overloaded
from nemo_gym.http.connection import ONE_WRITE_BYTES
from nemo_gym.http.open_files import ADVICE, most_incoming_calls, open_files_limit
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER
from nemo_gym.web.answer import Answer
from nemo_gym.web.call import is_health_check

HEAD_BYTES = 64 * 1024
"""Maximum size of a request line with all headers. The framing of a chunked body has the same limit."""
HEAD_S = 20
"""Seconds from the first byte of a request to the end of its headers."""
SILENCE_S = 60
"""Seconds after which a request fails if no further byte of its body arrives.

When the server closes a connection, the caller has the same time to read the last response.
"""
SLOWEST_BYTES_S = 1024
"""Bytes of a body that take back one second of silence. A slower caller reaches `SILENCE_S` although it sends."""
HEADER_FRAMING_BYTES = 4
"""Bytes of a header besides its name and its value: colon, space, CR and LF."""
EXTRA_S = 2
"""Seconds in which a connection must send its headers if it exceeds the limit on connections.

While there are such connections, other new connections must begin their first request within the same time.
"""
HEALTH_CHECK_FILES = 64
"""Maximum number of file descriptors reserved for health checks. At most an eighth of the limit is reserved."""
RETRY_AFTER_S = 1

Phase = Literal["idle", "head", "body", "response"]


# Look these methods up once, because each call of `super()` would take 1% of a request's time.
_data_received = HttpToolsProtocol.data_received
_on_headers_complete = HttpToolsProtocol.on_headers_complete


class Refusal(NamedTuple):
    """The response to a request that is not passed to the app."""

    status: HTTPStatus
    detail: str


class _Refused(Exception):
    """An error that stops the parser. uvicorn then calls `send_400_response`."""


class Connections(ServerState):
    def __init__(self) -> None:
        super().__init__()
        self.in_reserve: deque[Connection] = deque()
        """Connections that use file descriptors reserved for health checks, the oldest first."""
        self._was_scarce = False

    def add_extra(self, connection: Connection, *, uses_reserve: bool) -> None:
        """Add a connection that exceeds a limit.

        While such connections use over half of the descriptors reserved for health checks, close the oldest one.
        """
        self._was_scarce = True
        if uses_reserve:
            self.in_reserve.append(connection)
        while len(self.in_reserve) > files_for_health_checks() // 2:
            self.in_reserve.popleft().transport.abort()

    def check(self) -> None:
        """Close connections that exceed a limit. Must be called once per second."""
        for each in list(self.connections):
            if isinstance(each, Connection):
                each.grow_older(is_scarce=self._was_scarce)
        self._was_scarce = False


class Connection(HttpToolsProtocol):
    """One connection of a caller, with limits on the size and the duration of its requests."""

    # Use slots, because more attributes in the instance's dictionary would cost each connection another kilobyte.
    __slots__ = (
        "_age_s",
        "_framing_bytes",
        "_heard_bytes",
        "_is_extra",
        "_last",
        "_parsed_scope",
        "_read_bytes",
        "_refusal",
        "_unsure_bytes",
    )

    server_state: Connections

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._framing_bytes = 0
        """Bytes received since the last complete head or the last byte of a body. May be too low by up to one read."""
        self._read_bytes = 0
        """Bytes of the current read."""
        self._unsure_bytes = 0
        """Bytes of the read that completed the last head. An unknown part of them belongs to the next head."""
        self._parsed_scope: object = None
        """The scope of the latest request whose headers are complete."""
        self._refusal: Refusal | None = None
        self._is_extra = False
        self._heard_bytes = 0
        """Bytes that arrived since the last check."""
        self._last: tuple[Phase, object] = "idle", None
        """The phase and the request at the last check."""
        self._age_s = 0
        """Seconds since the current phase of the request began. A body's bytes take seconds back."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        descriptor = self.transport.get_extra_info("socket").fileno()
        # The system assigns the lowest free number, so `descriptor` is the number of descriptors in use.
        uses_reserve = descriptor >= open_files_limit() - files_for_health_checks()
        # Beyond these limits, answer only health checks, because the server's own calls need the other descriptors.
        if uses_reserve or len(self.server_state.connections) > most_incoming_calls():
            self._is_extra = True
            self.app = only_health_checks(self.app)
            self.server_state.add_extra(self, uses_reserve=uses_reserve)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_extra and self in self.server_state.in_reserve:
            self.server_state.in_reserve.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._read_bytes = size = len(data)
        self._heard_bytes += size
        self._framing_bytes += size
        cycle = self.cycle
        if cycle is None or not cycle.more_body:
            _data_received(self, data)
        else:
            known = len(cycle.body)
            _data_received(self, data)
            # After the response, uvicorn discards the rest of the request's body, so the body stops growing.
            if len(cycle.body) != known or cycle.response_complete:
                self._framing_bytes = 0
        if self._framing_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        if refusal := self._problem_of_head():
            self._refusal = refusal
            raise _Refused
        _on_headers_complete(self)
        if self.parser.should_upgrade() and self._should_upgrade():
            return
        if self.scope["method"] != "HEAD":
            self.cycle.transport = _ResponseWriter(self.transport)  # type: ignore[assignment]
        self._parsed_scope = self.scope
        self._framing_bytes, self._unsure_bytes = 0, self._read_bytes
        # The parser reports trailers as headers. Collect them in a new list, which is never read.
        self.headers = []
        if self._is_extra:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Begin the next request, if the caller has sent one already.

        Unlike in the base class, no timer is set, because `grow_older` closes idle connections.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    @property
    def phase(self) -> Phase:
        """The part of a request that this connection waits for."""
        if self.scope is not self._parsed_scope:
            return "head"
        if self.cycle is None or self.cycle.response_complete:
            return "idle"
        return "body" if self.cycle.more_body else "response"

    def grow_older(self, *, is_scarce: bool) -> None:
        """Count a second, and close the connection if its caller has been too slow."""
        now = self.phase, self.scope
        gained_s = self._heard_bytes // SLOWEST_BYTES_S if now[0] == "body" else 0
        self._age_s = 0 if now != self._last else max(0, self._age_s + 1 - gained_s)
        self._last, self._heard_bytes = now, 0
        if self.transport.is_closing():
            if self._age_s > SILENCE_S:
                self.transport.abort()
        elif now[0] == "head":
            if self._age_s > (EXTRA_S if self._is_extra else HEAD_S):
                self._refuse(_SLOW_HEAD)
        elif now[0] == "body":
            if self.flow.read_paused or self.cycle.waiting_for_100_continue:
                # Do not count the seconds in which the caller waits for this server.
                self._age_s = 0
            elif self._age_s > SILENCE_S:
                self._refuse(_SLOW_BODY)
        elif now[0] == "idle" and self._age_s > self._idle_limit_s(is_scarce=is_scarce):
            self.transport.close()

    def _idle_limit_s(self, *, is_scarce: bool) -> int:
        if self._is_extra or (is_scarce and self.cycle is None):
            return EXTRA_S
        return self.timeout_keep_alive

    def _problem_of_head(self) -> Refusal | None:
        by_name = dict(self.headers)
        if b"host" not in by_name:
            if self.parser.get_http_version() == "1.1":
                return _HOST
        elif len(by_name) < len(self.headers) and [name for name, _ in self.headers].count(b"host") > 1:
            return _HOST
        if b"transfer-encoding" in by_name:
            codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
            if codings != [b"chunked"]:
                return _CODING
        if self._framing_bytes + self._unsure_bytes > HEAD_BYTES:
            # Measure the head itself, because part of these bytes may belong to a body or to another request.
            size = len(self.url) + sum(len(name) + len(value) + HEADER_FRAMING_BYTES for name, value in self.headers)
            return _TOO_LARGE if size > HEAD_BYTES else None
        return None

    def _refuse(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self.send_400_response(refusal.detail)

    def send_400_response(self, msg: str) -> None:
        """Reject a request and close the connection. Do not respond if another response is due or has begun."""
        status, detail = self._refusal or Refusal(HTTPStatus.BAD_REQUEST, msg)
        cycle = self.cycle
        # Do not respond twice, because the caller would take the second one for the response to its next request.
        is_next = not cycle.response_started if self.phase == "body" else cycle is None or cycle.response_complete
        if is_next and not self.transport.is_closing():
            head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head % len(detail) + detail.encode())
        self.transport.close()


class _ResponseWriter:
    """A transport that sends a response's head together with the first part of its body, to save a packet.

    It has the transport methods that uvicorn's request cycle calls. It is not used for HEAD requests, because their
    responses have no body.
    """

    __slots__ = ("_has_begun", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._has_begun = False

    def write(self, data: bytes) -> None:
        if self._has_begun:
            self._transport.write(data)
        elif self._head:
            self._has_begun = True
            if len(data) <= ONE_WRITE_BYTES:
                self._transport.write(self._head + data)
            else:
                self._transport.writelines((self._head, data))
        elif data.startswith(_CONTINUE):
            self._transport.write(data)
        else:
            self._head = data

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection. First send a head that was held back, so that the caller knows its request began."""
        if self._head and not self._has_begun:
            self.write(b"")
        self._transport.close()


_CONTINUE = STATUS_LINE[HTTPStatus.CONTINUE]
_HOST = Refusal(HTTPStatus.BAD_REQUEST, "A request must have exactly one Host header.")
_CODING = Refusal(HTTPStatus.NOT_IMPLEMENTED, "The only supported Transfer-Encoding is 'chunked'.")
_TOO_LARGE = Refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The request's headers are larger than {HEAD_BYTES} bytes."
)
_SLOW_HEAD = Refusal(HTTPStatus.REQUEST_TIMEOUT, f"The request's headers did not arrive within {HEAD_S} s.")
_SLOW_BODY = Refusal(
    HTTPStatus.REQUEST_TIMEOUT,
    f"The request's body was silent for {SILENCE_S} s, or slower than {SLOWEST_BYTES_S} bytes per second.",
)


def files_for_health_checks() -> int:
    """Return the number of descriptors that are kept free for health checks."""
    return min(HEALTH_CHECK_FILES, open_files_limit() // 8)


def only_health_checks(app: ASGIApp) -> ASGIApp:
    """Return an app that answers health checks and asks all other callers to try again later."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if is_health_check(scope):
            await app(scope, receive, send)
            return
        error = Overloaded(f"this server has as many connections as its limit on open files allows; {ADVICE}")
        await Answer(scope, send).fail(error, {NOT_BEGUN_HEADER: "1", "retry-after": str(RETRY_AFTER_S)})

    return answer

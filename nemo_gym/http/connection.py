"""One connection to a nemo_gym server. It carries one request at a time.

When a response is complete, the connection goes back on top of its origin's stack of idle connections. It is checked
again before the next request: readable data on an idle connection means that the server has closed it. Any other end
of a request, cancellation included, closes the connection.
"""

from __future__ import annotations

import asyncio
import select
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

import httptools

from nemo_gym.errors import ServerCallError
from nemo_gym.http.reply import BrokenReply, HungUp, RawHeaders, Reply, ReplyTimedOut, Timeouts, excerpt, too_large

RequestBody = bytes | list[bytes]
"""A request's body, in one piece or in several consecutive pieces."""
# Bodies up to this size are written together with the headers, because one write is then cheaper than two.
ONE_WRITE_BYTES = 128 * 1024
# The bytes allowed for the framing of one chunk. Further bytes count as headers.
CHUNK_FRAMING_BYTES = 32
# The longest delay of a timer, in seconds. uvloop rejects infinite delays.
LONGEST_ALARM_S = 86_400.0
# A deadline further away than this gets no timer yet, because most requests end long before their deadline.
NEAR_S = 10.0
# uvloop rounds timers to milliseconds, so a timer may fire early by this much.
ALARM_SLACK_S = 0.002


class Limits(NamedTuple):
    max_connections: int | None
    idle_s: float
    max_body_bytes: int
    max_head_bytes: int


class Request:
    """One request in progress, with its deadline and the future that receives the reply."""

    __slots__ = ("ends_at", "loop", "method", "sent_at", "started_at", "timeouts", "url", "waiter")

    def __init__(self, method: str, url: str, loop: asyncio.AbstractEventLoop, timeouts: Timeouts) -> None:
        self.method = method
        self.url = url
        self.loop = loop
        self.timeouts = timeouts
        self.started_at = self.sent_at = loop.time()
        self.ends_at = self.started_at + timeouts.total_s
        self.waiter: asyncio.Future[Reply] = loop.create_future()

    def message(self, what: str) -> str:
        return f"{self.method} {self.url}: {what}"

    @property
    def left_s(self) -> float:
        return self.ends_at - self.loop.time()

    @property
    def took_s(self) -> float:
        return self.loop.time() - self.started_at


class Owner(Protocol):
    """The pool of connections to one server, with the methods that a connection calls. `Origin` implements it."""

    def connection_made(self, connection: Connection) -> None: ...

    def connection_lost(self, connection: Connection) -> None: ...

    def put_back(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One connection and its current request. The parser calls the `on_` methods."""

    transport: asyncio.Transport

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.request: Request | None = None
        self.idle_since = 0.0
        self.is_lost = False
        self._owner = owner
        self._loop = loop
        self._limits = limits
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._poller: select.poll | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._is_made = False
        self._served = 0
        self._is_interim = False
        self._heard_at = 0.0
        self._forget_reply()

    # The pool calls the following methods.

    def is_usable(self) -> bool:
        """Return whether an idle connection is still open: readable data means that the server has closed it.

        This polls the socket, because the event loop may not have read the server's close yet.
        """
        if self.is_lost or self.transport.is_closing():
            return False
        if self._poller is None:
            # Create the poller only on reuse, because thousands of new connections can exist that do not need one.
            self._poller = select.poll()
            self._poller.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._poller.poll(0)

    def send(self, request: Request, head: bytes, body: RequestBody) -> None:
        """Write a request. Its `waiter` receives the reply or the error."""
        self.request = request
        self._forget_reply()
        if isinstance(body, list):
            self.transport.writelines([head, *body])
        elif len(body) <= ONE_WRITE_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        request.sent_at = self._heard_at = now = self._loop.time()
        self.look_ahead(now)

    def _forget_reply(self) -> None:
        self._status = 0
        self._is_reusable = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_headers: list[tuple[bytes, bytes]] | None = None
        self._parts: list[bytes] = []
        self._body_bytes = self._received_bytes = self._chunks = 0

    def look_ahead(self, now: float) -> None:
        """Set a timer if a timeout of the request is near. The pool repeats this check regularly."""
        request = self.request
        if request is None:
            return
        due = min(self._heard_at + request.timeouts.read_s, request.ends_at)
        # One timer serves many requests: a timer that is set for an earlier time is kept and set again after it fires.
        if due < now + NEAR_S and (self._alarm is None or due < self._alarm_at):
            self._set_alarm(due)

    def drop(self) -> None:
        """Close the connection without notifying the waiter."""
        self.request = None
        self.transport.abort()

    def fail(self, kind: type[ServerCallError], what: str) -> None:
        """Close the connection, and let the request's waiter raise an error of the class `kind`."""
        request, self.request = self.request, None
        self.transport.abort()
        if request is not None and not request.waiter.done():
            request.waiter.set_exception(kind(request.message(what)))

    # The event loop calls the following methods.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.is_lost:  # The connection was abandoned before it was opened.
            self.transport.abort()
            return
        self._is_made = True
        self._owner.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self.request is None or self._parser is None:
            self.transport.abort()
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._is_reusable = False
            self.fail(BrokenReply, f"the reply is not valid HTTP/1.1 ({error}): {excerpt(data, 80)}")
            return
        if self.request is None:
            self._finish()
            return
        self._heard_at = self._loop.time()
        self._check_size()

    def eof_received(self) -> None:
        # Abort, because otherwise the event loop would write the rest of the request to a disconnected server.
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._is_made:
            self._owner.connection_lost(self)
        if self.request is not None:
            self._end_of_stream(self.request, exc)
        # The parser refers back to this object. Break the cycle, so that both are freed at once.
        self._parser = None

    # The parser calls the following methods.

    def on_message_begin(self) -> None:
        if self.request is None:
            self._is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            if status == HTTPStatus.SWITCHING_PROTOCOLS:
                self.fail(BrokenReply, "the server switched to another protocol without a request to do so")
                return
            self._is_interim = True
            self._headers = []
            return
        self._status = status
        # The parser reports trailers as headers. They go to this new list, which is never read.
        self._head_headers, self._headers = self._headers, []
        if self.request is not None and self.request.method == "HEAD":
            # Do not reuse the connection, because the parser still expects a body.
            self._complete(is_reusable=False)

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)
        self._body_bytes += len(part)

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
            return
        assert self._parser is not None
        self._complete(is_reusable=self._parser.should_keep_alive())

    # The following methods end a request.

    def _complete(self, *, is_reusable: bool) -> None:
        request = self.request
        if request is None:
            return
        if self._body_bytes > self._limits.max_body_bytes:
            self._check_size()
            return
        self.request = None
        self._served += 1
        self._is_reusable = is_reusable
        if request.waiter.done():  # The request was cancelled a moment ago.
            self._is_reusable = False
            return
        body = b"".join(self._parts)
        request.waiter.set_result(Reply(self._status, self._head_headers or (), body, request.method, request.url))

    def _finish(self) -> None:
        self._parts = []
        # Do not reuse a connection with unsent data: the server answered before it had read the whole request.
        if self._is_reusable and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._owner.put_back(self)
        else:
            self.transport.abort()

    def _check_size(self) -> None:
        if self._body_bytes > self._limits.max_body_bytes:
            self.fail(BrokenReply, too_large(self._limits.max_body_bytes))
            return
        head_bytes = self._received_bytes - self._body_bytes - CHUNK_FRAMING_BYTES * self._chunks
        if head_bytes > self._limits.max_head_bytes:
            self.fail(BrokenReply, f"the headers are larger than the {self._limits.max_head_bytes} bytes allowed")

    def _end_of_stream(self, request: Request, exc: Exception | None) -> None:
        if exc is None and self._head_headers is not None and not _has_end_of_its_own(self._head_headers):
            self._complete(is_reusable=False)
            return
        how = "closed the connection" if exc is None else f"broke the connection ({exc})"
        when = f"{self._loop.time() - request.sent_at:.2f} s after the request"
        if self._received_bytes:
            self.fail(BrokenReply, f"the server {how} within {self._position()}, {when}")
            return
        self.request = None
        if not request.waiter.done():
            history = f"which had served {self._served} before" if self._served else "which was new"
            what = f"the server {how}, {history}, before the first byte of an answer, {when}"
            request.waiter.set_exception(HungUp(request.message(what), was_reused=self._served > 0))

    def _position(self) -> str:
        if self._head_headers is None:
            return f"the headers, after {self._received_bytes} bytes"
        announced = next((value for name, value in self._head_headers if name.lower() == b"content-length"), None)
        of = f" of {announced.decode('latin-1')}" if announced else ""
        return f"the body, after {self._body_bytes}{of} bytes"

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        request = self.request
        if request is None:
            return
        now = self._loop.time() + ALARM_SLACK_S
        silent_until = self._heard_at + request.timeouts.read_s
        waiting_for = self._position() if self._received_bytes else "the first byte of an answer"
        if now >= request.ends_at:
            limit = f"{request.timeouts.total_s:.3g} s (total_s)"
            self.fail(ReplyTimedOut, f"no whole answer within {limit}, still waiting for {waiting_for}")
        elif now >= silent_until:
            silence = f"no byte for {request.timeouts.read_s:.3g} s (read_s)"
            self.fail(ReplyTimedOut, f"{silence} while waiting for {waiting_for}, {request.took_s:.2f} s in all")
        else:
            self.look_ahead(now)


def _has_end_of_its_own(headers: RawHeaders) -> bool:
    """Return whether the headers define where the body ends. Otherwise, it ends when the connection closes."""
    return any(
        name.lower() == b"content-length"
        or (name.lower() == b"transfer-encoding" and value.lower().rstrip().endswith(b"chunked"))
        for name, value in headers
    )

"""Call our own servers: a lean HTTP/1.1 client over pooled connections, bytes in and bytes out.

ServerCallError         of `nemo_gym.errors`; every one raised here is one of these
├─ NotConnected         nothing was sent (`was_sent` is False): refused, unreachable, no free connection
├─ HungUp               sent, and the server closed before the first byte of an answer
├─ BrokenReply          an answer began and did not end, is no HTTP/1.1, or is too large
├─ ReplyTimedOut        silence for `read_s`, or no whole answer within `total_s`
└─ ServerReplied        `Reply.raise_for_status` of a status of 400 or more

How a connection lives: it serves one request at a time, goes back on top of its origin's pile the moment the
answer is whole, and is looked at once more (is there anything to read, such as the peer's good-bye?) before
the next request uses it. Whatever ends in another way, cancellation included, closes it.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple, Self, cast
from urllib.parse import unquote, urlsplit

import httptools
import orjson

from nemo_gym.errors import ServerCallError

RawHeaders = Sequence[tuple[bytes, bytes]]

MEBIBYTE = 1024 * 1024
RESPONSE_CONTENT_BYTES = 64 * 1024
# Below this, copying a body behind its head is cheaper than a second write to the socket.
ONE_WRITE_BYTES = 64 * 1024
# What a chunk's own framing may take; anything beyond counts as header.
CHUNK_FRAMING_BYTES = 32
# Timers are re-armed at least this often, since uvloop cannot count to infinity.
LONGEST_ALARM_S = 86_400.0
# uvloop's timers have whole milliseconds, so one may ring that much early.
ALARM_SLACK_S = 0.002
BACKLOG_PAUSE_S = 0.005

NEEDS_LENGTH = frozenset({"POST", "PUT", "PATCH"})
OWN_HEADERS = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})
METHOD_PATTERN = re.compile(r"[A-Z]+")
PATH_PATTERN = re.compile(r"/[!-~]*")


class NotConnected(ServerCallError):
    """No connection came about, so nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, was_sent=False)


class HungUp(ServerCallError):
    """The server closed before the first byte of an answer.

    `was_reused` tells that the connection had served before: the server may have grown tired of it just then.
    """

    def __init__(self, message: str, *, was_reused: bool = False) -> None:
        super().__init__(message)
        self.was_reused = was_reused


class BrokenReply(ServerCallError):
    """An answer that stopped halfway, cannot be read, or is larger than allowed."""


class ReplyTimedOut(ServerCallError):
    """The answer did not come in time."""


class ServerReplied(ServerCallError):
    """A whole answer came, with a status of 400 or more; `response_content` is how its body begins (64 KiB)."""

    def __init__(self, message: str, *, status: int, url: str, response_content: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.url = url
        self.response_content = response_content


class Timeouts(NamedTuple):
    """How long one request may wait, in seconds; `total_s` also bounds the other three together."""

    connect_s: float = 10.0
    """For the connection to come about."""
    read_s: float = 1800.0
    """For the next byte of the answer."""
    total_s: float = 3600.0
    """For everything, from the call to the last byte."""
    queue_s: float = 3600.0
    """For a free connection, where `max_connections` bounds them."""


class Headers(Mapping[str, str]):
    """Header values by name, in any case; a name that came several times gives its first value here."""

    def __init__(self, raw: RawHeaders) -> None:
        self.raw = raw
        self._values: dict[str, list[str]] = {}
        for name, value in raw:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()][0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def getall(self, name: str) -> list[str]:
        """Every value of a name, in the order they came; empty where there is none."""
        return list(self._values.get(name.lower(), ()))

    def __repr__(self) -> str:
        return f"Headers({self._values!r})"


class Content(NamedTuple):
    """A reply's body, for callers that read it as a stream."""

    body: bytes

    async def read(self) -> bytes:
        """The whole body."""
        return self.body


class Reply:
    """A whole answer; whatever costs time to parse is parsed when it is asked for."""

    __slots__ = ("_cookies", "_headers", "body", "method", "raw_headers", "status", "url")

    def __init__(self, status: int, raw_headers: RawHeaders, body: bytes, method: str, url: str) -> None:
        self.status = status
        self.raw_headers = raw_headers
        self.body = body
        self.method = method
        self.url = url
        self._headers: Headers | None = None
        self._cookies: SimpleCookie | None = None

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def reason(self) -> str:
        """The usual words for the status."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return ""

    @property
    def headers(self) -> Headers:
        """The headers; trailers of a chunked body are not among them."""
        if self._headers is None:
            self._headers = Headers(self.raw_headers)
        return self._headers

    @property
    def set_cookie_values(self) -> list[str]:
        """The `Set-Cookie` headers as they came."""
        return [value.decode("latin-1") for name, value in self.raw_headers if name.lower() == b"set-cookie"]

    @property
    def cookies(self) -> SimpleCookie:
        """The cookies that the server sets; a header that is no cookie is left out."""
        if self._cookies is None:
            self._cookies = SimpleCookie()
            for value in self.set_cookie_values:
                with suppress(CookieError):
                    self._cookies.load(value)
        return self._cookies

    @property
    def content(self) -> Content:
        """The body, to be read."""
        return Content(self.body)

    async def read(self) -> bytes:
        """The body."""
        return self.body

    async def json(self, loads: Callable[[bytes], Any] = orjson.loads) -> Any:
        """The body, parsed as JSON."""
        return loads(self.body)

    async def text(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        """The body as text."""
        return self.body.decode(encoding, errors)

    def raise_for_status(self) -> None:
        """Raise `ServerReplied` where the status is 400 or more."""
        if self.ok:
            return
        raise ServerReplied(
            f"{self.method} {self.url}: answered {self.status} {self.reason}: {_excerpt(self.body, 400)}",
            status=self.status,
            url=self.url,
            response_content=self.body[:RESPONSE_CONTENT_BYTES],
        )

    def __repr__(self) -> str:
        return f"<Reply {self.status} to {self.method} {self.url}, {len(self.body)} bytes>"


class InternalClient:
    """Sends requests to our own servers and keeps the connections.

    Thousands of requests may be under way at once. There is no cookie jar, no redirect, no proxy and no TLS: what
    is not passed is not sent. Each event loop has connections of its own, so one client may serve several loops;
    `close` ends those of all of them and every request under way, and is final.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        max_connections: int | None = None,
        idle_s: float = 30.0,
        max_body_bytes: int = 256 * MEBIBYTE,
        max_head_bytes: int = MEBIBYTE // 4,
    ) -> None:
        """`max_connections` counts per origin (host and port, or socket path) and event loop.

        `idle_s` is how long an unused connection is kept; it must stay well below what the servers keep (ours: 75 s).
        """
        self.timeouts = timeouts or Timeouts()
        self._limits = _Limits(max_connections, idle_s, max_body_bytes, max_head_bytes)
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self,
        method: str,
        host: str,
        port: int,
        path: str,
        *,
        body: bytes = b"",
        headers: RawHeaders = (),
        timeouts: Timeouts | None = None,
        uds: str | None = None,
    ) -> Reply:
        """Send one request and wait for the whole answer, whatever its status.

        `path` is what stands in the request line: quoted, with its query. With `uds`, the path of a unix socket,
        `host` and `port` only name the server in messages and in the `Host` header. `Host` and `Content-Length` are
        added here. Raises one of the errors drawn at the top where no whole answer came, `ValueError` where the
        request could not be put on the wire.
        """
        loop = asyncio.get_running_loop()
        origin = (self._pools.get(loop) or self._open_pool(loop)).origin(host, port, uds)
        head = _request_head(method, path, origin.authority, headers, body)
        request = _Request(method, origin.url + path, loop, timeouts or self.timeouts)
        connection = origin.take_idle() or await origin.take_other(request)
        connection.send(request, head, body)
        try:
            return await request.waiter
        except BaseException:
            if connection.request is request:
                connection.drop()
            raise

    async def request_url(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: RawHeaders = (),
        timeouts: Timeouts | None = None,
    ) -> Reply:
        """`request` with one URL: `http://host:port/path`, or `http+unix://%2Fquoted%2Fsocket/path`."""
        host, port, path, uds = _split_url(url)
        return await self.request(method, host, port, path, body=body, headers=headers, timeouts=timeouts, uds=uds)

    async def close(self) -> None:
        """Close every connection; requests under way fail, and so does every later one."""
        self._is_closed = True
        here = asyncio.get_running_loop()
        for loop, pool in list(self._pools.items()):
            if loop is here:
                pool.close()
                await pool.emptied.wait()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(pool.close)
        self._pools.clear()

    def _open_pool(self, loop: asyncio.AbstractEventLoop) -> _Pool:
        if self._is_closed:
            raise NotConnected("this client has been closed; make another one for further requests")
        for other in [other for other in list(self._pools) if other.is_closed()]:
            self._pools.pop(other, None)
        pool = self._pools[loop] = _Pool(loop, self._limits)
        return pool


class _Limits(NamedTuple):
    max_connections: int | None
    idle_s: float
    max_body_bytes: int
    max_head_bytes: int


class _Request:
    """One request under way: whom it is for, until when, and who waits for its answer."""

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


class _Pool:
    """The connections of one event loop, and the timer that lets idle ones go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: _Limits) -> None:
        self.loop = loop
        self.limits = limits
        self.connections: set[_Connection] = set()
        self.is_closed = False
        self.emptied = asyncio.Event()
        self._origins: dict[tuple[str, int, str | None], _Origin] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def origin(self, host: str, port: int, uds: str | None) -> _Origin:
        key = (host, port, uds)
        return self._origins.get(key) or self._origins.setdefault(key, _Origin(self, host, port, uds))

    def expect_idle(self) -> None:
        if self._sweep is None and not self.is_closed:
            self._sweep = self.loop.call_later(self.limits.idle_s, self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._sweep = None
        # A list, since every origin has to be swept.
        if any([origin.let_idle_go() for origin in self._origins.values()]):
            self.expect_idle()

    def close(self) -> None:
        self.is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for origin in self._origins.values():
            origin.turn_away("the client was closed while this waited for a free connection")
        for connection in list(self.connections):
            connection.fail(BrokenReply, "the client was closed before the answer was whole")
        self.note_if_emptied()

    def note_if_emptied(self) -> None:
        if self.is_closed and not self.connections:
            self.emptied.set()


class _Origin:
    """The connections to one address: a pile of idle ones and, under a limit, a queue for them."""

    def __init__(self, pool: _Pool, host: str, port: int, uds: str | None) -> None:
        self.pool = pool
        self.host = host.strip("[]")
        self.port = port
        self.uds = uds
        authority = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        self.authority = authority
        self.url = f"http+unix:{uds}:" if uds else f"http://{authority}"
        self._idle: deque[_Connection] = deque()
        self._open = 0
        self._opening = 0
        # What is handed on: a connection, or None for the right to open one (already counted in `_opening`).
        self._queue: deque[asyncio.Future[_Connection | None]] = deque()

    def take_idle(self) -> _Connection | None:
        """The connection used last, if the server still keeps it."""
        idle = self._idle
        if not idle:
            return None
        too_old = self.pool.loop.time() - self.pool.limits.idle_s
        while idle:
            connection = idle.pop()
            if connection.idle_since > too_old and connection.is_usable():
                return connection
            connection.drop()
        return None

    async def take_other(self, request: _Request) -> _Connection:
        """A new connection, or the next free one where no more may be opened."""
        limit = self.pool.limits.max_connections
        if limit is None or self._open + self._opening < limit:
            self._opening += 1
            return await self._connect(request)
        while True:
            handed = await self._wait_in_queue(request)
            if handed is None:
                return await self._connect(request)
            if handed.is_usable():
                return handed
            handed.drop()

    def put_back(self, connection: _Connection) -> None:
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        connection.idle_since = self.pool.loop.time()
        self._idle.append(connection)
        self.pool.expect_idle()

    def connection_made(self, connection: _Connection) -> None:
        self._open += 1
        self.pool.connections.add(connection)

    def connection_lost(self, connection: _Connection) -> None:
        self._open -= 1
        self.pool.connections.discard(connection)
        self.pool.note_if_emptied()
        self._hand_on_places()

    def let_idle_go(self) -> bool:
        """Close what has been idle for too long; tell whether any is left."""
        too_old = self.pool.loop.time() - self.pool.limits.idle_s
        while self._idle and (self._idle[0].is_lost or self._idle[0].idle_since <= too_old):
            self._idle.popleft().drop()
        return bool(self._idle)

    def turn_away(self, why: str) -> None:
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_exception(NotConnected(why))

    async def _wait_in_queue(self, request: _Request) -> _Connection | None:
        limit_s = min(request.timeouts.queue_s, request.left_s, LONGEST_ALARM_S)
        waiter: asyncio.Future[_Connection | None] = self.pool.loop.create_future()
        self._queue.append(waiter)
        try:
            async with asyncio.timeout(limit_s):
                return await waiter
        except NotConnected as error:
            raise NotConnected(request.message(str(error))) from None
        except BaseException as error:
            with suppress(ValueError):
                self._queue.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._return_to_queue(waiter.result())
            if not isinstance(error, TimeoutError):
                raise
            raise NotConnected(
                request.message(
                    f"none of the {self.pool.limits.max_connections} connections (max_connections) became free "
                    f"within {limit_s:.3g} s"
                )
            ) from None

    def _return_to_queue(self, handed: _Connection | None) -> None:
        if handed is not None:
            self.put_back(handed)
            return
        self._opening -= 1
        self._hand_on_places()

    def _hand_on_places(self) -> None:
        limit = self.pool.limits.max_connections
        while self._queue and limit is not None and self._open + self._opening < limit:
            waiter = self._queue.popleft()
            if not waiter.done():
                self._opening += 1
                waiter.set_result(None)

    async def _connect(self, request: _Request) -> _Connection:
        """Open a connection; the caller has counted it in `_opening`."""
        limit_s = min(request.timeouts.connect_s, request.left_s, LONGEST_ALARM_S)
        connection = _Connection(self)
        try:
            async with asyncio.timeout(limit_s):
                await self._open_stream(connection)
        except TimeoutError:
            why = f"no connection within {limit_s:.3g} s: the server does not accept it"
            raise NotConnected(request.message(why)) from None
        except (OSError, UnicodeError) as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else str(error)
            why = f"no connection: {reason} (after {request.took_s:.2f} s). Is the server running there?"
            raise NotConnected(request.message(why)) from error
        finally:
            self._opening -= 1
            self._hand_on_places()
        if self.pool.is_closed:
            connection.drop()
            raise NotConnected(request.message("the client was closed while this was connecting"))
        if connection.transport.is_closing():
            raise NotConnected(request.message("the server accepted the connection and closed it at once"))
        return connection

    async def _open_stream(self, connection: _Connection) -> None:
        loop = self.pool.loop
        try:
            if self.uds:
                await loop.create_unix_connection(lambda: connection, sock=await _unix_socket(self.uds))
            else:
                await loop.create_connection(lambda: connection, self.host, self.port)
        except BaseException:
            # Given up at the last moment, a connection may exist already; uvloop closes it without a word.
            connection.connection_lost(None)
            raise


class _Connection(asyncio.Protocol):
    """One connection and the one request it serves; the `on_` methods are called by the parser."""

    transport: asyncio.Transport

    def __init__(self, origin: _Origin) -> None:
        self.request: _Request | None = None
        self.idle_since = 0.0
        self.is_lost = False
        self._origin = origin
        self._loop = origin.pool.loop
        self._limits = origin.pool.limits
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._poller = select.poll()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._is_made = False
        self._served = 0
        self._is_reusable = False
        self._is_interim = False
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_headers: list[tuple[bytes, bytes]] | None = None
        self._parts: list[bytes] = []
        self._body_bytes = self._received_bytes = self._chunks = 0
        self._heard_at = 0.0

    # What the pool asks

    def is_usable(self) -> bool:
        """Whether the peer still keeps the connection: an idle one has nothing to say but good-bye.

        The socket itself is asked, since the event loop may not have come round to read that good-bye.
        """
        return not self.is_lost and not self.transport.is_closing() and not self._poller.poll(0)

    def send(self, request: _Request, head: bytes, body: bytes) -> None:
        """Write a request; its waiter hears how it ends."""
        self.request = request
        self._status = 0
        self._is_reusable = False
        self._headers = []
        self._head_headers = None
        self._parts = []
        self._body_bytes = self._received_bytes = self._chunks = 0
        if len(body) <= ONE_WRITE_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        request.sent_at = self._heard_at = now = self._loop.time()
        # One timer outlives many requests: it is moved back only when it rings too early, which is rare.
        due = min(now + request.timeouts.read_s, request.ends_at, now + LONGEST_ALARM_S)
        if self._alarm is None or due < self._alarm_at:
            self._set_alarm(due)

    def drop(self) -> None:
        """Close without a word to whoever waits."""
        self.request = None
        self.transport.abort()

    def fail(self, kind: type[ServerCallError], what: str) -> None:
        """Close, and tell whoever waits."""
        request, self.request = self.request, None
        self.transport.abort()
        if request is not None and not request.waiter.done():
            request.waiter.set_exception(kind(request.message(what)))

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.is_lost:  # given up while it came about
            self.transport.abort()
            return
        self._is_made = True
        self._poller.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._origin.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self.request is None or self._parser is None:
            self.transport.abort()
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._is_reusable = False
            self.fail(BrokenReply, f"what came is not a reply in HTTP/1.1 ({error}): {_excerpt(data, 80)}")
            return
        if self.request is None:
            self._finish()
            return
        self._heard_at = self._loop.time()
        self._check_size()

    def eof_received(self) -> None:
        # Left alone, the event loop would first write what remains of the request, to a server that has gone.
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._is_made:
            self._origin.connection_lost(self)
        if self.request is not None:
            self._end_of_stream(self.request, exc)
        # The parser refers back to this object; without it, nothing has to wait for the garbage collector.
        self._parser = None

    # What the parser tells

    def on_message_begin(self) -> None:
        if self.request is None:
            self._is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200 and status != HTTPStatus.SWITCHING_PROTOCOLS:
            self._is_interim = True
            self._headers = []
            return
        if status == HTTPStatus.SWITCHING_PROTOCOLS:
            self.fail(BrokenReply, "the server switched to another protocol, which nobody had asked for")
            return
        self._status = status
        # Trailers come the same way as headers; they go to a list that nobody reads.
        self._head_headers, self._headers = self._headers, []
        if self.request is not None and self.request.method == "HEAD":
            # The parser cannot know that no body follows, so it cannot serve another request.
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

    # How a request ends

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
        if request.waiter.done():  # cancelled in this very moment
            self._is_reusable = False
            return
        body = b"".join(self._parts)
        request.waiter.set_result(Reply(self._status, self._head_headers or (), body, request.method, request.url))

    def _finish(self) -> None:
        self._parts = []
        # A server may answer before it has read the request; then the rest of that is still under way.
        if self._is_reusable and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._origin.put_back(self)
        else:
            self.transport.abort()

    def _check_size(self) -> None:
        if self._body_bytes > self._limits.max_body_bytes:
            self.fail(BrokenReply, f"the body is larger than the {self._limits.max_body_bytes} bytes allowed")
            return
        head_bytes = self._received_bytes - self._body_bytes - CHUNK_FRAMING_BYTES * self._chunks
        if head_bytes > self._limits.max_head_bytes:
            self.fail(BrokenReply, f"the headers are larger than the {self._limits.max_head_bytes} bytes allowed")

    def _end_of_stream(self, request: _Request, exc: Exception | None) -> None:
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
            self._set_alarm(min(silent_until, request.ends_at, now + LONGEST_ALARM_S))


async def _unix_socket(path: str) -> socket.socket:
    """A connected socket.

    TCP waits by itself while the server's backlog is full; a unix socket says EAGAIN at once, which asyncio takes for
    "under way". So the connecting is done here; it never blocks.
    """
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        while True:
            try:
                connecting.connect(path)
                return connecting
            except BlockingIOError:
                await asyncio.sleep(BACKLOG_PAUSE_S)
    except BaseException:
        connecting.close()
        raise


def _has_end_of_its_own(headers: RawHeaders) -> bool:
    """Whether headers say where the body ends, so that the end of the stream cannot."""
    return any(
        name.lower() == b"content-length"
        or (name.lower() == b"transfer-encoding" and value.lower().rstrip().endswith(b"chunked"))
        for name, value in headers
    )


def _request_head(method: str, path: str, authority: str, headers: RawHeaders, body: bytes) -> bytes:
    lines = [_first_lines(method, path, authority)]
    for name, value in headers:
        if name.lower() in OWN_HEADERS:
            raise ValueError(f"{method} {path}: the header {name!r} is written by the client itself; leave it out.")
        lines.append(b"%b: %b\r\n" % (name, value))
    if body or method in NEEDS_LENGTH:
        lines.append(b"content-length: %d\r\n" % len(body))
    lines.append(b"\r\n")
    head = b"".join(lines)
    # Each line brings one of either; one more would be a header, or a request, that somebody smuggled in.
    if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1:
        raise ValueError(f"{method} {path}: a header holds a line break: {list(headers)!r}")
    return head


@lru_cache(maxsize=1024)
def _first_lines(method: str, path: str, authority: str) -> bytes:
    if not METHOD_PATTERN.fullmatch(method):
        raise ValueError(f"{method!r} is no HTTP method; write it in capitals, such as 'POST'.")
    if not PATH_PATTERN.fullmatch(path):
        raise ValueError(f"{method} {path!r}: a path begins with '/' and is quoted (urllib.parse.quote) beyond ASCII.")
    return f"{method} {path} HTTP/1.1\r\nhost: {authority}\r\n".encode("ascii")


class _SplitUrl(NamedTuple):
    host: str
    port: int
    path: str
    uds: str | None


@lru_cache(maxsize=1024)
def _split_url(url: str) -> _SplitUrl:
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "http+unix" and parts.netloc:
        return _SplitUrl("localhost", 80, path, unquote(parts.netloc))
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url!r}: between our own servers, a URL is http://host:port/path (no TLS).")
    return _SplitUrl(parts.hostname, parts.port or 80, path, None)


def _excerpt(content: bytes, length: int) -> str:
    text = content[:length].decode("utf-8", "replace")
    return repr(text) + ("…" if len(content) > length else "") if content else "(nothing)"

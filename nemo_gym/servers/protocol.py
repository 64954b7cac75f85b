"""HTTP/1.1 for an ASGI app on uvicorn: its server, with a protocol that costs a connection and a request less.

In place of `uvicorn.protocols.http.httptools_impl`: an answer leaves in one piece with its head, a connection has one
timer for as long as it lives, and one that is idle holds nothing of its last request.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context, copy_context
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from nemo_gym.servers.exchange import STATUS_LINES, Exchange

logger = logging.getLogger(__name__)

THIS_MACHINE = ("127.0.0.1", 0)
ASGI = {"version": "3.0", "spec_version": "2.3"}
METHODS = {method.encode(): method for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}
NAMES = {
    name: name
    for name in (
        b"accept", b"accept-encoding", b"authorization", b"connection", b"content-length", b"content-type", b"cookie",
        b"host", b"user-agent", b"x-nemo-gym-input-at", b"x-nemo-gym-rollout-id", b"x-nemo-gym-run-id",
        b"x-nemo-gym-run-token", b"x-nemo-gym-time-left",
    )
}  # fmt: skip
"""Names that come with thousands of requests, each kept once."""
HELD_REQUESTS = 16
"""More are not taken in while one is under way; while fewer wait, the caller's leaving is noticed."""
NOT_HTTP = b"Invalid HTTP request received."


class HttpProtocol(asyncio.Protocol):
    """One connection of one caller; the `on_` methods are called by the parser."""

    __slots__ = (
        "_app_state", "_client", "_config", "_exchange", "_expects_continue", "_headers", "_idle_since",
        "_keep_alive_timer", "_later", "_local", "_loop", "_parser", "_state", "_url", "_writable", "transport",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._state = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._exchange: Exchange | None = None
        self._later: list[tuple[Exchange, Context]] | None = None
        """Requests that came before an earlier one was answered, and where each is to run."""
        self._writable: asyncio.Future[None] | None = None
        self._idle_since = 0.0
        self._keep_alive_timer: asyncio.TimerHandle | None = None

    # What uvicorn asks

    def shutdown(self) -> None:
        """Close once what is under way has been answered."""
        if self._exchange is None:
            self.transport.close()
        else:
            self._exchange.keep_alive = False

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._local = get_local_addr(self.transport)
        self._client = get_remote_addr(self.transport)
        if self._client is None and self._local is not None and self._local[1] is None:
            # Over a unix socket; an author's code may well ask where a caller is.
            self._client = THIS_MACHINE

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._lose_caller()
        self.resume_writing()
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
        # The parser refers back to this object; without it, nothing has to wait for the garbage collector.
        self._parser = None

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            logger.warning("what came from %s is not HTTP", self._client)
            self._refuse()
        except httptools.HttpParserUpgrade:
            # The request itself is answered; what follows would be of another protocol.
            logger.warning("%s asked for another protocol, and there is none", self._client)
            exchange = self._later[-1][0] if self._later else self._exchange
            if exchange is not None:
                exchange.keep_alive = False

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # What the parser tells

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        known = NAMES.get(name)
        if known is None:
            known = name.lower()
            if known == b"expect":
                self._expects_continue = value.lower() == b"100-continue"
        self._headers.append((known, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        method, version = parser.get_method(), parser.get_http_version()
        path, query = _split(self._url)
        text = path.decode("ascii")
        root = self._config.root_path
        scope = {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "server": self._local,
            "client": self._client,
            "scheme": "http",
            "method": METHODS.get(method) or method.decode("ascii"),
            "root_path": root,
            "path": root + (unquote(text) if "%" in text else text),
            "raw_path": root.encode("ascii") + path,
            "query_string": query,
            "headers": self._headers,
            "state": self._app_state.copy(),
        }
        exchange = Exchange(
            self,
            scope,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            expects_continue=self._expects_continue,
        )
        if self._exchange is None:
            self._begin(exchange)
            return
        # It begins when an earlier one ends, and sees nothing of that one's context.
        self._later = [*(self._later or ()), (exchange, copy_context())]
        if len(self._later) >= HELD_REQUESTS:
            self.transport.pause_reading()

    def on_body(self, body: bytes) -> None:
        exchange = self._later[-1][0] if self._later else self._exchange
        if exchange is not None:
            exchange.add_body(body)

    def on_message_complete(self) -> None:
        # The next request begins with nothing of this one, however early its first bytes come.
        self._url = b""
        self._headers = []
        self._expects_continue = False
        exchange = self._later[-1][0] if self._later else self._exchange
        if exchange is not None:
            exchange.end_body()

    # What an exchange asks

    @property
    def config(self) -> Config:
        return self._config

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer says."""
        return self._state.default_headers

    @property
    def is_full(self) -> bool:
        """Whether more was sent than the caller takes in."""
        return self._writable is not None

    async def drain(self) -> None:
        """Wait until the caller has taken in what was sent."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def end(self, exchange: Exchange) -> None:
        """An answer is whole: go on with the next request, or wait for one."""
        self._state.total_requests += 1
        if exchange is not self._exchange:
            return
        self._exchange = None
        if self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self.transport.close()
            return
        self.transport.resume_reading()
        if self._later:
            (following, context), *self._later = self._later
            context.run(self._begin, following)
            return
        self._idle_since = self._loop.time()
        if self._keep_alive_timer is None:
            self._look_again_in(self._config.timeout_keep_alive)

    def _begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        task = self._loop.create_task(exchange.run(self._config.loaded_app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    # One timer outlives many requests: what it looks for is rare.

    def _look_again_in(self, seconds: float) -> None:
        self._keep_alive_timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._keep_alive_timer = None
        if self._exchange is not None or self.transport.is_closing():
            return
        left_s = self._idle_since + self._config.timeout_keep_alive - self._loop.time()
        if self._url:
            # Part of a request has come.
            left_s = self._config.timeout_keep_alive
        if left_s > 0:
            self._look_again_in(left_s)
        else:
            self.transport.close()

    def _refuse(self) -> None:
        has_begun_answer = self._exchange is not None and self._exchange.has_begun
        self._lose_caller()
        if has_begun_answer:
            # A second answer in the midst of the first would be taken for a part of it.
            self.transport.close()
            return
        head = [STATUS_LINES[400], *(b"%b: %b\r\n" % header for header in self.default_headers)]
        head.append(b"content-type: text/plain; charset=utf-8\r\n")
        head.append(b"content-length: %d\r\nconnection: close\r\n\r\n" % len(NOT_HTTP))
        self.transport.write(b"".join((*head, NOT_HTTP)))
        self.transport.close()

    def _lose_caller(self) -> None:
        if self._exchange is not None:
            self._exchange.lose_caller()
        self._exchange = self._later = None


def _split(url: bytes) -> tuple[bytes, bytes]:
    """The path and the query of what stands in the request line."""
    if url[:1] == b"/" and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""

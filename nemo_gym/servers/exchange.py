"""One request and its answer, between an ASGI app and the connection on which they travel."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message
from uvicorn.protocols.utils import get_client_addr, get_path_with_query_string

if TYPE_CHECKING:
    from nemo_gym.servers.protocol import HttpProtocol

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("uvicorn.access")

HELD_BYTES = 256 * 1024
"""More of a request's body is not taken in before the app asks for it."""
ONE_PIECE_BYTES = 64 * 1024
"""Below this, copying a body behind its head is cheaper than a second piece."""
WITHOUT_BODY = frozenset({204, 304})
PHRASES = {status.value: status.phrase for status in HTTPStatus}
STATUS_LINES = {status: f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\n".encode() for status in range(100, 600)}
FAILED = b"Internal Server Error"
CONTROLS = bytes(sorted({*range(32), 127} - set(b"\t\r\n")))
"""What no header's value may hold."""
NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, section 5.1."""


class Exchange:
    """Runs the app for one request."""

    __slots__ = (
        "_chunks", "_expects_continue", "_has_body_ended", "_head", "_held_bytes", "_is_chunked", "_is_news",
        "_is_over", "_left_bytes", "_protocol", "_waiters", "is_lost", "keep_alive", "scope",
    )  # fmt: skip

    def __init__(
        self, protocol: HttpProtocol, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        """Whether the connection stays open behind the answer."""
        self.is_lost = False
        """Whether the caller has gone."""
        self._protocol = protocol
        self._chunks: list[bytes] = []
        self._held_bytes = 0
        self._has_body_ended = False
        self._is_news = False
        """Whether there is something that the app has not received."""
        self._waiters: tuple[asyncio.Future[None], ...] = ()
        """One for each part of the app that waits for something to receive."""
        self._expects_continue = expects_continue
        self._head: bytes | None = None
        """Of the answer, until its body begins; empty afterwards."""
        self._is_chunked = False
        self._left_bytes = 0
        self._is_over = False

    @property
    def has_begun(self) -> bool:
        """Whether something of the answer has been sent."""
        return self._head == b""

    # What the connection tells

    def add_body(self, body: bytes) -> None:
        """A part of the request's body has come."""
        if self._is_over:
            return
        self._chunks.append(body)
        self._held_bytes += len(body)
        if self._held_bytes > HELD_BYTES:
            self._protocol.transport.pause_reading()
        self._tell()

    def end_body(self) -> None:
        """The request is whole."""
        self._has_body_ended = True
        self._tell()

    def lose_caller(self) -> None:
        """The caller has gone."""
        self.is_lost = True
        self._tell()

    def _tell(self) -> None:
        self._is_news = True
        if self._waiters:
            waiters, self._waiters = self._waiters, ()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # What the app asks

    async def run(self, app: ASGIApp) -> None:
        """Let the app answer; whatever it does, the caller hears of it."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            logger.error("%s %s failed", self.scope["method"], self.scope["path"], exc_info=error)
            await self._fail()
            return
        if not self._is_over and not self.is_lost:
            logger.error("%s %s ended without a whole answer", self.scope["method"], self.scope["path"])
            await self._fail()

    async def receive(self) -> Message:
        """The next part of the request's body; afterwards, that the caller has gone or been answered."""
        transport = self._protocol.transport
        if self._expects_continue:
            self._expects_continue = False
            if not transport.is_closing():
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._is_news or self._is_over or self.is_lost):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters = (*(other for other in self._waiters if not other.done()), waiter)
            await waiter
        self._is_news = False
        if self.is_lost or self._is_over:
            return {"type": "http.disconnect"}
        if self._held_bytes > HELD_BYTES:
            transport.resume_reading()
        chunks, self._chunks, self._held_bytes = self._chunks, [], 0
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return {"type": "http.request", "body": body, "more_body": not self._has_body_ended}

    async def send(self, message: Message) -> None:
        """Send the answer's head or a part of its body. Raises `RuntimeError` for what can be no answer."""
        protocol = self._protocol
        if protocol.is_full and not self.is_lost:
            await protocol.drain()
        if self.is_lost:
            return
        kind = message["type"]
        if self._head is None:
            if kind != "http.response.start":
                raise RuntimeError(f"an answer begins with 'http.response.start', not with '{kind}'")
            self._expects_continue = False
            # It leaves with the beginning of the body.
            self._head = self._headed(message["status"], message.get("headers", ()))
            if protocol.config.access_log:
                self._log(message["status"])
            return
        if kind != "http.response.body" or self._is_over:
            raise RuntimeError(f"'{kind}' came where {'nothing' if self._is_over else 'the body'} was to be answered")
        is_last = not message.get("more_body", False)
        head, self._head = self._head, b""
        body = self._framed(message.get("body", b""), is_last=is_last)
        if len(body) <= ONE_PIECE_BYTES:
            protocol.transport.write(head + body)
        else:
            protocol.transport.writelines((head, body))
        if is_last:
            self._is_over = True
            self._tell()
            protocol.end(self)

    def _framed(self, body: bytes, *, is_last: bool) -> bytes:
        """A part of the body as it travels."""
        if self.scope["method"] == "HEAD":
            return b""
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk + b"0\r\n\r\n" if is_last else chunk
        self._left_bytes -= len(body)
        if self._left_bytes < 0 or (is_last and self._left_bytes > 0):
            raise RuntimeError("the body is longer or shorter than its Content-Length says")
        return body

    def _headed(self, status: int, headers: Any) -> bytes:
        lines = [STATUS_LINES[status]]
        self._is_chunked = has_length = says_close = False
        for name, value in (*self._protocol.default_headers, *headers):
            lowered = _name_of(name)
            lines.append(b"%b: %b\r\n" % (lowered, value))
            if lowered == b"content-length":
                has_length, self._left_bytes = True, int(value)
            elif lowered == b"transfer-encoding" and value.lower() == b"chunked":
                has_length, self._is_chunked = True, True
            elif lowered == b"connection" and b"close" in value.lower():
                says_close, self.keep_alive = True, False
        if not has_length and self.scope["method"] != "HEAD" and status not in WITHOUT_BODY:
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        # Each line brings one of either; one more would be a header, or an answer, that somebody smuggled in.
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
            raise RuntimeError(f"a header of the answer holds a line break: {list(headers)!r}")
        if len(head.translate(None, CONTROLS)) != len(head):
            raise RuntimeError(f"a header of the answer holds a control character: {list(headers)!r}")
        return head

    async def _fail(self) -> None:
        if self.is_lost or self._is_over:
            return
        if self._head is None:
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(FAILED)),
                (b"connection", b"close"),
            ]
            await self.send({"type": "http.response.start", "status": 500, "headers": headers})
            await self.send({"type": "http.response.body", "body": FAILED})
        else:
            # What has begun can only be broken off.
            self.keep_alive = False
            self._protocol.transport.close()

    def _log(self, status: int) -> None:
        access_logger.info(
            '%s - "%s %s HTTP/%s" %d',
            get_client_addr(self.scope),  # type: ignore[arg-type]
            self.scope["method"],
            get_path_with_query_string(self.scope),  # type: ignore[arg-type]
            self.scope["http_version"],
            status,
        )


@lru_cache(maxsize=1024)
def _name_of(name: bytes) -> bytes:
    if not NAME.fullmatch(name):
        raise RuntimeError(f"a header of the answer has a name that is none: {name!r}")
    return name.lower()

"""Call our own servers: a lean HTTP/1.1 client over pooled connections, bytes in and bytes out."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

from nemo_gym.http.connection import Limits, Request
from nemo_gym.http.pool import Pool
from nemo_gym.http.reply import NotConnected, RawHeaders, Reply, Timeouts

MEBIBYTE = 1024 * 1024

NEEDS_LENGTH = frozenset({"POST", "PUT", "PATCH"})
OWN_HEADERS = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})
METHOD_PATTERN = re.compile(r"[A-Z]+")
PATH_PATTERN = re.compile(r"/[!-~]*")


class InternalClient:
    """Sends requests to our own servers and keeps the connections.

    Thousands of requests may be under way at once. There is no cookie jar, no redirect, no proxy and no TLS: what
    is not passed is not sent. Each event loop has connections of its own, so one client may serve several loops;
    `close` ends those of all of them and every request under way, and is final; a loop that ends before takes its
    connections with it, and Python warns of that.
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
        self._limits = Limits(max_connections, idle_s, max_body_bytes, max_head_bytes)
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
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
        added here. Raises one of the errors of `nemo_gym.http.reply` where no whole answer came, `ValueError` where
        the request could not be put on the wire.
        """
        loop = asyncio.get_running_loop()
        origin = (self._pools.get(loop) or self._open_pool(loop)).origin(host, port, uds)
        head = _request_head(method, path, origin.authority, headers, body)
        request = Request(method, origin.url + path, loop, timeouts or self.timeouts)
        connection = origin.take_idle() or await origin.take_other(request)
        connection.send(request, head, body)
        # Thousands may wait here at once, and none of them needs these any more.
        del head, body
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

    def _open_pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        if self._is_closed:
            raise NotConnected("this client has been closed; make another one for further requests")
        for other in [other for other in list(self._pools) if other.is_closed()]:
            self._pools.pop(other, None)
        pool = self._pools[loop] = Pool(loop, self._limits)
        return pool


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


def check_request_line(method: str, path: str) -> None:
    """Raise `ValueError` where a request line could not hold this."""
    if not METHOD_PATTERN.fullmatch(method):
        raise ValueError(f"{method!r} is no HTTP method; write it in capitals, such as 'POST'.")
    if not PATH_PATTERN.fullmatch(path):
        raise ValueError(f"{method} {path!r}: a path begins with '/' and is quoted (urllib.parse.quote) beyond ASCII.")


@lru_cache(maxsize=1024)
def _first_lines(method: str, path: str, authority: str) -> bytes:
    check_request_line(method, path)
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

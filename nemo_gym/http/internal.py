"""A lean HTTP/1.1 client for nemo_gym's servers, with pooled connections."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

from nemo_gym.config.tls import Tls
from nemo_gym.http.connection import Limits, Request, RequestBody
from nemo_gym.http.pool import Pool
from nemo_gym.http.reply import MAX_BODY_BYTES, NotConnected, RawHeaders, Reply, Timeouts

MEBIBYTE = 1024 * 1024

NEEDS_LENGTH = frozenset({"POST", "PUT", "PATCH"})
OWN_HEADERS = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})
METHOD_PATTERN = re.compile(r"[A-Z]+")
PATH_PATTERN = re.compile(r"/[!-~]*")


class InternalClient:
    """A client for nemo_gym's servers that keeps its connections open for further requests.

    It supports thousands of concurrent requests. It does not support cookie jars, redirects or proxies. Each event
    loop has its own connections, so one client may serve several loops. `close` is final: it closes all
    connections and fails the requests in progress. If a loop is closed first, its connections end with it and Python
    warns about them.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        max_connections: int | None = None,
        idle_s: float = 30.0,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_head_bytes: int = MEBIBYTE // 4,
        tls: Tls | None = None,
    ) -> None:
        """Set the limits. `max_connections` applies per origin (host and port, or socket path) and event loop.

        `idle_s` is how long an unused connection is kept. It must be well below the servers' limit (nemo_gym: 75 s).
        With `tls`, all servers must speak TLS, except those on unix sockets.
        """
        self.tls = tls
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
        body: RequestBody = b"",
        headers: RawHeaders = (),
        timeouts: Timeouts | None = None,
        uds: str | None = None,
    ) -> Reply:
        """Send one request and return the complete reply, with any status.

        `path` is quoted and includes the query. `body` may be in pieces, which are not copied. `uds` is the path of a
        unix socket; if it is set, `host` and `port` only name the server in messages and in the `Host` header. This
        method adds `Host` and `Content-Length`. Raise an error of `nemo_gym.http.reply` if there is no complete reply,
        and `ValueError` if the request cannot be sent as HTTP.
        """
        loop = asyncio.get_running_loop()
        origin = (self._pools.get(loop) or self._open_pool(loop)).origin(host, port, uds)
        head = _request_head(method, path, origin.authority, headers, body)
        request = Request(method, origin.url + path, loop, timeouts or self.timeouts)
        connection = origin.take_idle() or await origin.take_other(request)
        connection.send(request, head, body)
        # Free the request's data, because thousands of requests may wait here at once.
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
        """Call `request` with a URL: `http://host:port/path` or `http+unix://%2Fquoted%2Fsocket/path`."""
        host, port, path, uds = split_url(url)
        return await self.request(method, host, port, path, body=body, headers=headers, timeouts=timeouts, uds=uds)

    async def close(self) -> None:
        """Close every connection. Requests in progress fail, and so do later ones."""
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
            raise NotConnected("this client has been closed; create a new one for further requests")
        for other in [other for other in list(self._pools) if other.is_closed()]:
            self._pools.pop(other, None)
        pool = self._pools[loop] = Pool(loop, self._limits, self.tls)
        return pool


def _request_head(method: str, path: str, authority: str, headers: RawHeaders, body: RequestBody) -> bytes:
    lines = [_first_lines(method, path, authority)]
    try:
        for name, value in headers:
            lines += _begin_header(name), value
    except ValueError as error:
        raise ValueError(f"{method} {path}: {error}") from error
    has_length = bool(body) or method in NEEDS_LENGTH
    if has_length:
        lines.append(b"\r\ncontent-length: %d" % (len(body) if isinstance(body, bytes) else sum(map(len, body))))
    lines.append(b"\r\n\r\n")
    head = b"".join(lines)
    # Expect a line break after the request line and after each header, and one for the empty line. Any further line
    # break would smuggle in another header or request.
    breaks = 3 + len(headers) + has_length
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks:
        broken = next(name for name, value in headers if {*b"\r\n"} & {*name, *value})
        # Do not show the header's value, because it may be an API key.
        raise ValueError(f"{method} {path}: the header {broken!r} holds a line break.")
    return head


def check_request_line(method: str, path: str) -> None:
    """Raise `ValueError` if the method or the path is not valid in a request line."""
    if not METHOD_PATTERN.fullmatch(method):
        raise ValueError(f"{method!r} is not an HTTP method. Write it in capitals, such as 'POST'.")
    if not PATH_PATTERN.fullmatch(path):
        raise ValueError(f"{method} {path!r}: a path must begin with '/' and be quoted (see urllib.parse.quote).")


@lru_cache(maxsize=1024)
def _first_lines(method: str, path: str, authority: str) -> bytes:
    check_request_line(method, path)
    return f"{method} {path} HTTP/1.1\r\nhost: {authority}".encode("ascii")


@lru_cache(maxsize=1024)
def _begin_header(name: bytes) -> bytes:
    if name.lower() in OWN_HEADERS:
        raise ValueError(f"the client adds the header {name!r} itself; leave it out.")
    return b"\r\n%b: " % name


class _SplitUrl(NamedTuple):
    host: str
    port: int
    path: str
    uds: str | None


@lru_cache(maxsize=1024)
def split_url(url: str) -> _SplitUrl:
    """Split a URL that `InternalClient.request_url` accepts. Raise `ValueError` for any other URL."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "http+unix" and parts.netloc:
        return _SplitUrl("localhost", 80, path, unquote(parts.netloc))
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url!r}: between nemo_gym's servers, a URL must be http://host:port/path (no TLS).")
    return _SplitUrl(parts.hostname, parts.port or 80, path, None)

"""The reply of a nemo_gym server, and the errors of calls that get no usable reply.

ServerCallError         defined in `nemo_gym.errors`; the client raises only its subclasses:
├─ NotConnected         nothing was sent (`was_sent` is False): refused or unreachable
│  ├─ NotTrusted        the TLS handshake failed, for example because of the certificate
│  └─ NoFreeConnection  all connections, or all open files of this process, stayed in use
├─ HungUp               the server closed the connection before the first byte of a reply
├─ BrokenReply          the reply is incomplete, is not valid HTTP/1.1, or is too large
├─ ReplyTimedOut        no byte for `read_s`, or no complete reply within `total_s`
└─ ServerReplied        raised by `Reply.raise_for_status` for a status of 400 or more
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import responses
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from nemo_gym.errors import ServerCallError
from nemo_gym.http.raising import as_expected
from nemo_gym.jsonl import loads_exact

if TYPE_CHECKING:
    from aiohttp import ClientTimeout

RawHeaders = Sequence[tuple[bytes, bytes]]

JSON_HEADER = (b"content-type", b"application/json")

RESPONSE_CONTENT_BYTES = 256 * 1024
"""Bytes of a failed reply that `ServerReplied` keeps. They are enough for the conversation of a failed rollout."""
MAX_BODY_BYTES = 256 * 1024 * 1024
"""Maximum size of a decompressed reply body."""


class NotConnected(ServerCallError):
    """A failed attempt to connect. Nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, was_sent=False)


class NotTrusted(NotConnected):
    """A failed TLS handshake. A retry does not help."""


class NoFreeConnection(NotConnected):
    """A timeout because all connections that this process may open stayed in use."""


class HungUp(ServerCallError):
    """A connection that the server closed before the first byte of a reply.

    `was_reused` means that the connection was not new, so the server may have closed it for being idle.
    """

    def __init__(self, message: str, *, was_reused: bool = False) -> None:
        super().__init__(message)
        self.was_reused = was_reused


class BrokenReply(ServerCallError):
    """A reply that is incomplete, invalid, or larger than allowed."""


class ReplyTimedOut(ServerCallError, TimeoutError):
    """A timeout before the reply was complete."""


class ServerReplied(ServerCallError):
    """A reply with a status of 400 or more; `response_content` has the first 256 KiB of its body."""

    def __init__(self, message: str, *, status: int, url: str, response_content: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.url = url
        self.response_content = response_content


class Timeouts(NamedTuple):
    """The timeouts of one request, in seconds; `total_s` also bounds the other three together."""

    connect_s: float = 10.0
    read_s: float = 1800.0
    """The time to wait for the next byte of the reply."""
    total_s: float = 3600.0
    """The time for the whole request, from the call to the last byte."""
    queue_s: float = 3600.0
    """The time to wait for a free connection, if `max_connections` or the limit on open files is reached."""

    def within(self, left_s: float) -> Timeouts:
        """Return these timeouts, with `total_s` reduced to the time that the rollout has left."""
        return Timeouts(self.connect_s, self.read_s, min(self.total_s, left_s), self.queue_s)

    def connecting_within(self, connect_s: float) -> Timeouts:
        """Return these timeouts, with `connect_s` reduced to at most the given value."""
        return Timeouts(min(self.connect_s, connect_s), self.read_s, self.total_s, self.queue_s)

    @classmethod
    def of(cls, timeout: float | ClientTimeout) -> Timeouts:
        """Convert aiohttp's `timeout`: total seconds, or a `ClientTimeout`. Fields that are None get defaults."""
        if isinstance(timeout, (int, float)):
            return cls(total_s=timeout)
        given = (timeout.sock_connect, timeout.sock_read, timeout.total, timeout.connect)
        return cls(*(ours if theirs is None else theirs for ours, theirs in zip(cls(), given, strict=True)))


class Headers(Mapping[str, str]):
    """Header values by case-insensitive name. For a repeated header, this is the first value; `raw` has all."""

    def __init__(self, raw: RawHeaders) -> None:
        self.raw = raw

    def __getitem__(self, name: str) -> str:
        # Compare undecoded names to save time, because callers look for a few headers in every reply.
        wanted = name.lower().encode("latin-1", "replace")
        for each, value in self.raw:
            if each.lower() == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1").lower() for name, _ in self.raw))

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self.raw})

    def __repr__(self) -> str:
        return f"Headers({dict(self)!r})"


class Reply:
    """A complete reply. Headers, cookies and JSON are parsed on demand."""

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
        return self.status < 400

    @property
    def reason(self) -> str:
        """The standard phrase for the status, or an empty string."""
        return responses.get(self.status, "")

    @property
    def headers(self) -> Headers:
        """The headers, without the trailers of a chunked body."""
        if self._headers is None:
            self._headers = Headers(self.raw_headers)
        return self._headers

    @property
    def set_cookie_values(self) -> list[str]:
        """The unparsed values of the `Set-Cookie` headers."""
        return [value.decode("latin-1") for name, value in self.raw_headers if name.lower() == b"set-cookie"]

    @property
    def cookies(self) -> SimpleCookie:
        """The cookies that the server sets. Invalid `Set-Cookie` headers are skipped."""
        if self._cookies is None:
            self._cookies = SimpleCookie()
            for value in self.set_cookie_values:
                with suppress(CookieError):
                    self._cookies.load(value)
        return self._cookies

    @property
    def cookie_values(self) -> dict[str, str]:
        """The cookies that the server sets, by name, encoded as they must be sent back."""
        found = {}
        for value in self.set_cookie_values:
            name, is_pair, coded = value.partition(";")[0].partition("=")
            if not is_pair or '"' in value:
                # A quoted value may contain a semicolon, so it needs the full parser.
                return {name: morsel.coded_value for name, morsel in self.cookies.items()}
            found[name.strip()] = coded.strip()
        return found

    @property
    def content(self) -> Self:
        """The reply itself, for callers that use aiohttp's `content.read()`."""
        return self

    async def read(self) -> bytes:
        return self.body

    async def json(
        self,
        *,
        encoding: str | None = None,
        loads: Callable[[bytes | str], object] = loads_exact,
        content_type: str | None = None,
    ) -> Any:
        """Parse the body as JSON, with any content type. The keywords are those of aiohttp."""
        return loads(self.body if encoding is None else self.body.decode(encoding))

    async def text(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return self.body.decode(encoding, errors)

    def raise_for_status(self) -> None:
        if self.ok:
            return
        error = ServerReplied(
            f"{self.method} {self.url}: answered {self.status} {self.reason}: {excerpt(self.body, 400)}",
            status=self.status,
            url=self.url,
            response_content=self.body[:RESPONSE_CONTENT_BYTES],
        )
        raise as_expected(error, method=self.method, url=self.url, headers=self.headers)

    def __repr__(self) -> str:
        return f"<Reply {self.status} to {self.method} {self.url}, {len(self.body)} bytes>"


def too_large(most_bytes: int) -> str:
    return f"the body is larger than the {most_bytes} bytes allowed"


def excerpt(content: bytes, length: int) -> str:
    text = content[:length].decode("utf-8", "replace")
    return repr(text) + ("…" if len(content) > length else "") if content else "(nothing)"


def readable(body: bytes, limit: int = 600) -> str:
    """Return a body as one line of text, cut at `limit` characters. A JSON string loses its quotes."""
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    text = " ".join((parsed if isinstance(parsed, str) else body.decode("utf-8", "replace")).split())
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"

"""Call a server that lives in this very process: the same request and the same answer, without a socket between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from nemo_gym.http.deadline import CLOCK_SLACK_S, time_left_s
from nemo_gym.http.internal import NEEDS_LENGTH, OWN_HEADERS, InternalClient, check_request_line
from nemo_gym.http.reply import BrokenReply, RawHeaders, Reply, ReplyTimedOut, Timeouts
from nemo_gym.schemas.rollout import INPUT_AT_HEADER, ROLLOUT_HEADER, RUN_ID_HEADER, RUN_TOKEN_HEADER, TIME_LEFT_HEADER

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
ASGIApp = Callable[..., Awaitable[None]]

LOCAL_SCOPE_KEY = "nemo_gym.local"
"""In the scope of a call from this very process."""
WRITTEN_AS_READ = frozenset(
    name.encode() for name in (RUN_ID_HEADER, RUN_TOKEN_HEADER, ROLLOUT_HEADER, TIME_LEFT_HEADER, INPUT_AT_HEADER)
) | {b"content-type", b"cookie"}
"""What our own caller writes, it writes as it would arrive."""
ASGI = {"version": "3.0", "spec_version": "2.3"}
CLIENT = ("127.0.0.1", 0)
FAILED = b"Internal Server Error"
FAILED_HEADERS = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(FAILED)))
"""What our servers answer for an app that gives no answer."""


@dataclass
class LocalApp:
    """An app of this process, middlewares and all, with what its lifespan has left for its requests."""

    app: ASGIApp
    state: dict[str, Any] = field(default_factory=dict)


class LocalClient(InternalClient):
    """Asks the apps of this process at once, and every other server as ever.

    A call runs in its caller's task: what cancels the caller cancels the handler, as a closed connection would. It
    has context variables of its own, as in another process.
    """

    def __init__(self, apps: Mapping[tuple[str, int], LocalApp]) -> None:
        super().__init__()
        self._apps = apps
        self._context = copy_context()

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
        """See `InternalClient.request`; what the answer needs beyond its last byte is waited for, too."""
        local = self._apps.get((host, port))
        if local is None or uds is not None:
            return await super().request(
                method, host, port, path, body=body, headers=headers, timeouts=timeouts, uds=uds
            )
        target = _target(method, host, port, path)
        asked = _Exchange(target.url, method, body)
        scope = {**target.scope, "headers": _received_headers(target, headers, asked), "state": dict(local.state)}
        answering = _Apart(local.app(scope, asked.receive, asked.send), self._context.copy())
        limits = timeouts or self.timeouts
        limit_s = min(limits.read_s, limits.total_s)
        left_s = time_left_s()
        # The app's own front ends the call in time, and can tell where it was.
        timeout = asyncio.timeout(limit_s) if left_s is None or left_s > limit_s + CLOCK_SLACK_S else None
        task = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        try:
            if timeout is None:
                await answering
            else:
                async with timeout:
                    await answering
        except Exception as error:
            if isinstance(error, TimeoutError) and timeout is not None and timeout.expired():
                limit = "read_s" if limits.read_s < limits.total_s else "total_s"
                told = f"{method} {asked.url}: no whole answer within {limit_s:.3g} s ({limit})"
                raise ReplyTimedOut(told) from None
            # As a server does, that has no caller to raise it to.
            logger.exception("%s %s failed", method, asked.url)
        except asyncio.CancelledError:
            if task.cancelling() > cancelled_before:
                raise
            # Something that the app waited for was cancelled: its failure, and not the end of its caller.
            logger.exception("%s %s failed", method, asked.url)
        finally:
            asked.end()
        return asked.reply()


class _Apart:
    """What is awaited in this task and sees context variables of its own."""

    __slots__ = ("_context", "_steps")

    def __init__(self, awaitable: Awaitable[None], context: Context) -> None:
        self._steps: Generator[Any, Any, None] = awaitable.__await__()
        self._context = context

    def __await__(self) -> Generator[Any, Any, None]:
        run, steps = self._context.run, self._steps
        try:
            awaited = run(steps.send, None)
            while True:
                try:
                    value = yield awaited
                except BaseException as error:  # noqa: BLE001 - it is theirs to handle
                    awaited = run(steps.throw, error)
                else:
                    awaited = run(steps.send, value)
        except StopIteration:
            return


class _Exchange:
    """A request as the app receives it, and the answer as it comes."""

    __slots__ = ("_body", "_chunks", "_ended", "_is_whole", "_start", "body_bytes", "method", "url")

    def __init__(self, url: str, method: str, body: bytes) -> None:
        self.url = url
        self.method = method
        self.body_bytes = len(body)
        self._body: bytes | None = body
        self._ended: asyncio.Future[None] | None = None
        self._start: Message | None = None
        self._chunks: list[bytes] = []
        self._is_whole = False

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if not self._is_whole:
            if self._ended is None:
                self._ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._ended)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._chunks.append(message.get("body", b""))
            if not message.get("more_body", False):
                self._is_whole = True
                self.end()

    def end(self) -> None:
        """Let whoever listens for the caller's leaving hear of it."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def reply(self) -> Reply:
        if self._start is None:
            return Reply(500, FAILED_HEADERS, FAILED, self.method, self.url)
        if not self._is_whole:
            raise BrokenReply(f"{self.method} {self.url}: the server ended the call in the midst of its answer")
        headers = [(bytes(name).lower(), bytes(value)) for name, value in self._start.get("headers", ())]
        body = b"" if self.method == "HEAD" else b"".join(self._chunks)
        return Reply(self._start["status"], headers, body, self.method, self.url)


class _Target(NamedTuple):
    """What all requests for one address have in common."""

    scope: dict[str, Any]
    authority: bytes
    url: str


@lru_cache(maxsize=1024)
def _target(method: str, host: str, port: int, path: str) -> _Target:
    """Raises `ValueError` where a request line could not hold this."""
    check_request_line(method, path)
    raw_path, _, query = path.partition("#")[0].partition("?")
    scope = {
        "type": "http",
        "asgi": ASGI,
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw_path) if "%" in raw_path else raw_path,
        "raw_path": raw_path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "client": CLIENT,
        "server": (host, port),
        LOCAL_SCOPE_KEY: True,
    }
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return _Target(scope, authority.encode(), f"http://{authority}{path}")


def _received_headers(target: _Target, headers: RawHeaders, asked: _Exchange) -> list[tuple[bytes, bytes]]:
    """The headers as a server reads them. Raises `ValueError` where they could not be written."""
    values = b"".join([value for _, value in headers])
    if b"\n" in values or b"\r" in values:
        raise ValueError(f"{asked.url}: a header holds a line break: {list(headers)!r}")
    received = [(b"host", target.authority)]
    received += [
        pair if pair[0] in WRITTEN_AS_READ else (_received_name(pair[0]), pair[1].lstrip(b" \t")) for pair in headers
    ]
    if asked.body_bytes or asked.method in NEEDS_LENGTH:
        received.append((b"content-length", b"%d" % asked.body_bytes))
    return received


@lru_cache(maxsize=1024)
def _received_name(name: bytes) -> bytes:
    if name.lower() in OWN_HEADERS:
        raise ValueError(f"the header {name!r} is written by the client itself; leave it out.")
    if b"\n" in name or b"\r" in name:
        raise ValueError(f"a header's name holds a line break: {name!r}")
    return name.lower()

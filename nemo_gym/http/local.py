"""Call a server that lives in this very process: the same request and the same answer, without a socket between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import HungUp, RawHeaders, Reply, ReplyTimedOut, Timeouts
from nemo_gym.schemas.rollout import TIME_LEFT_HEADER

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
ASGIApp = Callable[..., Awaitable[None]]

_TIME_LEFT = TIME_LEFT_HEADER.encode()
ASGI = {"version": "3.0", "spec_version": "2.3"}
CLIENT = ("127.0.0.1", 0)


@dataclass
class LocalApp:
    """An app of this process, middlewares and all, with what its lifespan has left for its requests."""

    app: ASGIApp
    state: dict[str, Any] = field(default_factory=dict)


class LocalClient(InternalClient):
    """Asks the apps of this process at once, and every other server as ever.

    A call runs in its caller's task: what cancels the caller cancels the handler, as a closed connection would.
    """

    def __init__(self, apps: Mapping[tuple[str, int], LocalApp]) -> None:
        super().__init__()
        self._apps = apps

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
        """See `InternalClient.request`."""
        local = self._apps.get((host, port))
        if local is None or uds is not None:
            return await super().request(
                method, host, port, path, body=body, headers=headers, timeouts=timeouts, uds=uds
            )
        asked = _Exchange(f"http://{host}:{port}{path}", method, body)
        length = (b"content-length", b"%d" % len(body))
        scope = {**_scope(method, host, port, path), "headers": [(b"host", host.encode()), *headers, length]}
        scope["state"] = dict(local.state)
        # Where the call tells how much time it has, the app's own layer ends it.
        is_bounded = any(name == _TIME_LEFT for name, _ in headers)
        limit_s = (timeouts or self.timeouts).total_s
        try:
            if is_bounded:
                await local.app(scope, asked.receive, asked.send)
            else:
                async with asyncio.timeout(limit_s) as over:
                    await local.app(scope, asked.receive, asked.send)
        except TimeoutError:
            if is_bounded or not over.expired():
                raise
            raise ReplyTimedOut(f"{method} {asked.url}: no whole answer within {limit_s:.3g} s (total_s)") from None
        except Exception:
            # As a server does that has no caller to raise it to.
            logger.exception("%s %s failed", method, asked.url)
        finally:
            asked.end()
        return asked.reply()


class _Exchange:
    """A request as the app receives it, and the answer as it comes."""

    __slots__ = ("_body", "_chunks", "_ended", "_is_whole", "_start", "method", "url")

    def __init__(self, url: str, method: str, body: bytes) -> None:
        self.url = url
        self.method = method
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
            self._is_whole = not message.get("more_body", False)

    def end(self) -> None:
        """Let whoever listens for the caller's leaving hear of it."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def reply(self) -> Reply:
        if self._start is None or not self._is_whole:
            raise HungUp(f"{self.method} {self.url}: the server ended the call without a whole answer")
        headers = [(bytes(name), bytes(value)) for name, value in self._start.get("headers", ())]
        return Reply(self._start["status"], headers, b"".join(self._chunks), self.method, self.url)


def _scope(method: str, host: str, port: int, path: str) -> dict[str, Any]:
    raw_path, _, query = path.partition("?")
    return {
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
    }

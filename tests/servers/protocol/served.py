"""An app that does what a test says, served by our HTTP protocol and by uvicorn's own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from nemo_gym.servers.protocol import HttpProtocol

PATIENCE_S = 10.0
MOMENT_S = 0.0005
"""Enough for the server to take in one packet before the next is sent."""
SOCKET_BYTES = 64 * 1024
MEGABYTE = 1024 * 1024
OURS, THEIRS = "ours", "uvicorn's"
PROTOCOLS: dict[str, Any] = {OURS: HttpProtocol, THEIRS: "httptools"}
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Handler = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class Left(Exception):
    """The caller went away while its body was read."""


async def read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Left
        body += message["body"]
        if not message["more_body"]:
            return body


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def whole(body: bytes) -> list[dict[str, Any]]:
    return [start(200, (b"content-length", b"%d" % len(body))), part(body, more=False)]


async def echo(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    body = await read(receive)
    told = {
        key: value.decode("latin-1") if isinstance(value, bytes) else value
        for key, value in scope.items()
        if key not in ("asgi", "client", "headers", "server")
    }
    told["headers"] = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
    told["body"] = body.decode("latin-1") if len(body) < 1000 else hashlib.sha256(body).hexdigest()
    for message in whole(json.dumps(told, sort_keys=True).encode()):
        await send(message)


class App:
    """Echoes what it is asked; what comes to `/given` is answered by the test."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing of an earlier test is left."""
        self.given: Handler = echo
        self.seen: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.gate = asyncio.Semaphore(0)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self.loop = asyncio.get_running_loop()
            scope["state"]["from lifespan"] = 1
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
        elif scope["path"] == "/given":
            await self.given(scope, receive, send)
        else:
            await echo(scope, receive, send)

    def open_gate(self) -> None:
        """Let a handler that waits at the gate go one step further."""
        self.loop.call_soon_threadsafe(self.gate.release)

    def next_seen(self) -> Any:
        return self.seen.get(timeout=PATIENCE_S)


class Served(NamedTuple):
    """A server under way, in a thread of its own."""

    name: str
    app: App
    address: Any
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        self.server.should_exit = True

    def says(self, messages: Sequence[dict[str, Any]]) -> None:
        """Let the app send these messages for whatever it is asked."""

        async def answer(_scope: dict[str, Any], receive: Receive, send: Send) -> None:
            await read(receive)
            for message in messages:
                await send(message)

        self.app.given = answer


@contextmanager
def serving(name: str, path: Path | None = None, **options: Any) -> Iterator[Served]:
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    # Small, so that what is held back is soon told from what lies in sockets.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    listener.bind(str(path) if path else ("127.0.0.1", 0))
    app = App()
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=PROTOCOLS[name],
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        proxy_headers=False,
        backlog=4096,
        **{"access_log": False, "timeout_graceful_shutdown": 1, **options},
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    address = listener.getsockname()
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield Served(name, app, address, server, thread)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def on_each_at_once(check: Callable[[str], None]) -> Callable[[], None]:
    """A test that mostly waits is made with both protocols in the same time."""

    def test() -> None:
        with ThreadPoolExecutor(len(PROTOCOLS)) as pool:
            list(pool.map(check, PROTOCOLS))

    return test


def wait_until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


async def say_without_reading(_scope: dict[str, Any], _receive: Receive, send: Send) -> None:
    for message in whole(b"unread"):
        await send(message)


LENGTH_3 = (b"content-length", b"3")


def has_settled(things: list[int]) -> bool:
    before = len(things)
    time.sleep(0.03)
    return 0 < before == len(things)


async def raises(_scope: dict[str, Any], _receive: Receive, _send: Send) -> None:
    raise ValueError("on purpose")

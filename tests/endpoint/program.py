"""Parts of programs that stand in for an endpoint, each in its own process."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class NoteRequests:
    """Middleware that adds each request to `seen` before it is handled, except those for `/seen` itself."""

    def __init__(self, app: ASGIApp, seen: list[dict[str, Any]]) -> None:
        self.app = app
        self.seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/seen":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        raw = await request.body()
        body = await request.json() if raw else None
        self.seen.append(
            {
                "path": scope["path"],
                "query": scope["query_string"].decode(),
                "headers": dict(request.headers),
                "body": body,
                "client": scope["client"][1],
            }
        )

        waiting = [{"type": "http.request", "body": raw, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, replay, send)


def serve(app: ASGIApp) -> None:
    """Print the port, which `--port` sets, and serve until the standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    listener = socket.create_server(("127.0.0.1", parser.parse_args().port), backlog=4096)
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - this is how a test learns the port
    # The test's process holds the other end of stdin; if it dies, this process ends too.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])

"""Calls to an ASGI app in this process that return the complete response."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]

OWN_CALL_SCOPE_KEY = "nemo_gym.own_call"
"""Scope key of a request that a server sends to itself while it handles another one."""


@dataclass(frozen=True)
class Answer:
    """A response whose body is complete."""

    status: int
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, with invalid bytes replaced."""
        return self.body.decode("utf-8", "replace")

    def with_body(self, body: bytes) -> Answer:
        kept = [(name, value) for name, value in self.headers if name.lower() != b"content-length"]
        return Answer(self.status, [*kept, (b"content-length", str(len(body)).encode())], body)

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


async def whole_body(receive: Receive) -> bytes:
    message = await receive()
    chunks = [message.get("body", b"")]
    while message.get("more_body", False):
        message = await receive()
        chunks.append(message.get("body", b""))
    return b"".join(chunks)


async def answer_of(app: ASGIApp, scope: Scope, body: bytes) -> Answer:
    """Return an app's response to a request with this body. Errors of the app propagate to the caller."""
    chunks: list[bytes] = []
    start: Message = {}
    is_over = asyncio.Event()
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        # Report a disconnect only after the response, because a handler may stop early if the client disconnects.
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        elif message["type"] == "http.response.body":
            chunks.append(message.get("body", b""))
            if not message.get("more_body", False):
                is_over.set()

    try:
        await app(scope, receive, send)
    finally:
        is_over.set()
    return Answer(start["status"], [(bytes(name), bytes(value)) for name, value in start["headers"]], b"".join(chunks))


def post_scope(path: str, headers: Headers, *, like: Scope) -> Scope:
    """Return the scope of a POST request with a JSON body, as if sent by the client of the request `like`."""
    return {
        "type": "http",
        # Use a default, because test clients do not set `asgi`.
        "asgi": like.get("asgi", {"version": "3.0"}),
        "http_version": like["http_version"],
        "method": "POST",
        "scheme": like["scheme"],
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers],
        "client": like.get("client"),
        "server": like.get("server"),
        OWN_CALL_SCOPE_KEY: True,
        "state": dict(like.get("state", {})),
    }

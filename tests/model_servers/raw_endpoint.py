"""An endpoint that answers each path with given bytes, and notes the requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

TLS_HANDSHAKE = b"\x16"


@dataclass
class RawEndpoint:
    """The endpoint's address, its next replies, and the requests so far."""

    url: str = ""
    status: int = 200
    body: bytes = b"{}"
    headers: tuple[str, ...] = ()
    turns: list[bytes] = field(default_factory=list)
    """Bodies of the next replies. After the last one, `body` is sent."""
    asked: list[dict] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while begin := await reader.readexactly(1):
                if begin == TLS_HANDSHAKE:
                    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    return
                head = begin + await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.strip().split(b"\r\n")[1:])
                sent = await reader.readexactly(int(fields.get(b"content-length", b"0")))
                self.asked.append(json.loads(sent or b"{}"))
                body = self.turns.pop(0) if self.turns else self.body
                lines = [f"HTTP/1.1 {self.status} X", f"content-length: {len(body)}", *self.headers, "", ""]
                writer.write("\r\n".join(lines).encode() + body)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw_endpoint() -> AsyncIterator[RawEndpoint]:
    """Serve on a free port until the block ends."""
    endpoint = RawEndpoint()
    server = await asyncio.start_server(endpoint.answer, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield endpoint
    finally:
        server.close()

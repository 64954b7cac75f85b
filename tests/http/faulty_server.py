"""A raw HTTP/1.1 server for tests of faults: the path of a request names the fault.

`python tests/http/faulty_server.py --port 8123 --idle-s 5` serves until it is stopped. Tests run it in a thread, so
that it acts even while the client's event loop is busy. It listens on loopback addresses and unix sockets only.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

HEAD_END = b"\r\n\r\n"
# Like other servers, this one waits longer for the first request than its `idle_s`.
FIRST_REQUEST_S = 30.0


@dataclass
class Request:
    """One received request, with header names in lower case; connections are numbered from 0."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    server: FaultyServer

    @property
    def number(self) -> float:
        """The last part of the path, as a number."""
        return float(self.path.rsplit("/", 1)[-1])


class Connection(NamedTuple):
    """The two ends of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes, pause_s: float = 0.0) -> None:
        """Write the parts one by one, with a pause after each."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(pause_s)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


# A fault answers one request. The connection stays open if it returns True.
Fault = Callable[[Request, Connection], Awaitable[bool]]
FAULTS: dict[str, Fault] = {}


def fault(answer: Fault) -> Fault:
    """Register a function under its name, with dashes: `/close-in-body` calls `close_in_body`."""
    FAULTS[answer.__name__.replace("_", "-")] = answer
    return answer


def reply(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a valid reply."""
    lines = [b"HTTP/1.1 " + status, b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + HEAD_END + body


@fault
async def echo(request: Request, to: Connection) -> bool:
    await to.send(reply(request.body))
    return True


@fault
async def describe(request: Request, to: Connection) -> bool:
    """Reply with the request's line, connection and cookie."""
    cookie = request.headers.get("cookie", "-")
    line = f"{request.method} {request.path} {request.connection} {request.headers['host']} {cookie}"
    await to.send(reply(line.encode()))
    return True


@fault
async def status(request: Request, to: Connection) -> bool:
    code = int(request.number)
    bodiless = code in {204, 304}
    head = b"HTTP/1.1 %d Whatever\r\n%s" % (code, b"" if bodiless else b"content-length: 7\r\n")
    await to.send(head + b"\r\n" + (b"" if bodiless else b"in full"))
    return True


@fault
async def bake(request: Request, to: Connection) -> bool:
    """Send two cookies and an invalid `Set-Cookie` header."""
    name = request.path.rsplit("/", 1)[-1].encode()
    cookies = [b"Set-Cookie: session=%b; path=/; httponly; samesite=lax" % name, b"set-cookie: theme=dark"]
    await to.send(reply(b"baked", *cookies, b"set-cookie: =;;=="))
    return True


@fault
async def chunked(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5;note=x\r\nhello\r\n", b"1\r\n,\r\n")
    await to.send(b"6\r\n wor", b"ld\r\n0\r", b"\n\r\n", pause_s=0.01)
    return True


@fault
async def trailers(request: Request, to: Connection) -> bool:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: set-cookie\r\n\r\n"
    await to.send(head + b"2\r\nhi\r\n0\r\nset-cookie: late=1\r\nchecksum: 5\r\n\r\n")
    return True


@fault
async def large(request: Request, to: Connection) -> bool:
    await to.send(reply(b"x" * int(request.number)))
    return True


@fault
async def large_chunked(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(int(request.number)):
        await to.send(b"400\r\n" + b"y" * 1024 + b"\r\n")
    await to.send(b"0\r\n\r\n")
    return True


@fault
async def slow(request: Request, to: Connection) -> bool:
    await asyncio.sleep(request.number)
    await to.send(reply(b"at last"))
    return True


@fault
async def meet(request: Request, to: Connection) -> bool:
    """Answer only when that many requests are in progress at once."""
    all_here = request.server.meetings.setdefault(request.path, asyncio.Event())
    if request.server.at_once >= request.number:
        all_here.set()
    await all_here.wait()
    await to.send(reply(b"met"))
    return True


@fault
async def drip(request: Request, to: Connection) -> bool:
    """Send the reply, headers included, byte by byte with pauses."""
    await to.send(*(bytes([byte]) for byte in reply(b"drop by drop")), pause_s=request.number)
    return True


@fault
async def interim(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n", reply(b"final"))
    return True


@fault
async def switch(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: chat\r\nconnection: upgrade\r\n\r\nhello")
    return False


@fault
async def until_eof(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\n\r\nall ", b"there is", pause_s=0.01)
    return False


@fault
async def connection_close(request: Request, to: Connection) -> bool:
    await to.send(reply(b"bye", b"connection: close"))
    return False


@fault
async def head_only(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    return True


@fault
async def surplus(request: Request, to: Connection) -> bool:
    """Send a second, unrequested reply in the same packet."""
    await to.send(reply(b"mine") + reply(b"not yours"))
    return True


@fault
async def afterthought(request: Request, to: Connection) -> bool:
    """Send a second, unrequested reply a moment later."""
    await to.send(reply(b"mine"), reply(b"not yours"), pause_s=0.05)
    return True


@fault
async def early(request: Request, to: Connection) -> bool:
    """Reply before reading the body, and keep the connection open."""
    await to.send(reply(b"too large for me", status=b"413 Content Too Large"))
    await asyncio.sleep(1.0)
    return False


@fault
async def close_before(request: Request, to: Connection) -> bool:
    return False


@fault
async def close_in_headers(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\ncontent-le")
    return False


@fault
async def close_in_body(request: Request, to: Connection) -> bool:
    await to.send(reply(b"0123456789")[:-3])
    return False


@fault
async def close_in_chunks(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
    return False


@fault
async def reset(request: Request, to: Connection) -> bool:
    to.reset()
    return False


@fault
async def reset_in_body(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\n\r\nsome", pause_s=0.05)
    to.reset()
    return False


@fault
async def garbage(request: Request, to: Connection) -> bool:
    await to.send(b"\x16\x03\x01 I speak TLS, do you?\r\n\r\n")
    return True


@fault
async def garbage_in_chunks(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno number\r\n")
    return True


@fault
async def two_lengths(request: Request, to: Connection) -> bool:
    await to.send(reply(b"which", b"content-length: 2"))
    return True


@fault
async def endless_headers(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await to.send(b"x-more: " + b"m" * 1000 + b"\r\n")


@fault
async def endless_interim(request: Request, to: Connection) -> bool:
    while True:
        await to.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)


@fault
async def endless_trailer(request: Request, to: Connection) -> bool:
    await to.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-more: ")
    while True:
        await to.send(b"m" * 1000)


@fault
async def silent(request: Request, to: Connection) -> bool:
    """Keep the connection open without a reply, as after a crash of the machine."""
    await asyncio.Event().wait()
    return False


@dataclass
class FaultyServer:
    """The server in its own thread. `with FaultyServer() as server:` makes it listen on `server.port`.

    It keeps idle connections for `idle_s`. `requests` has all received requests and `connections` counts all accepted
    connections. `at_once` counts the requests in progress, and `most_at_once` is its maximum.
    """

    host: str = "127.0.0.1"
    port: int = 0
    uds: str | None = None
    idle_s: float = 75.0
    backlog: int = 4096
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    at_once: int = 0
    most_at_once: int = 0
    meetings: dict[str, asyncio.Event] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _listen(self) -> None:
        self._served: set[asyncio.Task[None]] = set()
        if self.uds:
            self._server = await asyncio.start_unix_server(self._accept, self.uds, backlog=self.backlog)
            return
        self._server = await asyncio.start_server(self._accept, self.host, self.port, backlog=self.backlog)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(Connection(reader, writer), self.connections))
        self.connections += 1
        self._served.add(task)
        task.add_done_callback(self._served.discard)

    async def _serve(self, connection: Connection, number: int) -> None:
        try:
            wait_s = FIRST_REQUEST_S
            while (request := await self._next_request(connection, number, wait_s)) is not None:
                wait_s = self.idle_s
                self.requests.append(request)
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    if not await FAULTS[re.split(r"[/?]", request.path)[1]](request, connection):
                        break
                finally:
                    self.at_once -= 1
        except ConnectionError:
            pass
        finally:
            connection.writer.close()

    async def _next_request(self, connection: Connection, number: int, wait_s: float) -> Request | None:
        try:
            async with asyncio.timeout(wait_s):
                head = await connection.reader.readuntil(HEAD_END)
        except (TimeoutError, asyncio.IncompleteReadError):
            return None
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = 0 if path == "/early" else int(headers.get("content-length", "0"))
        try:
            body = await connection.reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return None
        return Request(method, path, headers, body, number, self)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--uds", default=None)
    parser.add_argument("--idle-s", type=float, default=75.0)
    arguments = parser.parse_args()
    with FaultyServer(port=arguments.port, uds=arguments.uds, idle_s=arguments.idle_s) as server:
        print(server.uds or f"http://127.0.0.1:{server.port}", *sorted(FAULTS), sep="\n", flush=True)  # noqa: T201
        threading.Event().wait()


if __name__ == "__main__":
    main()

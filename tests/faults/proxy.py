"""A TCP proxy for each place between two tiers, which injects the faults described in the requests themselves.

`python tests/faults/proxy.py agent=9001 policy=9002 …` listens on a free port for each place and prints the ports in
order on one line. It forwards to the port after `=` until its standard input ends. If a request's body contains
`fault=<place> <path> <kind> <times> case=<name>;`, the first <times> requests of that case to that path fail there.
Lines on standard input affect a whole place: `refuse <place>` and `accept <place>`.

reset              read the request, then reset the connection without forwarding it
hang-up            the same, but close the connection normally
reset-after        forward the request, then reset the connection without a response
reset-midway       send half of the response, then reset
half               send half of the response, then close
garbage            send bytes that are not HTTP
drip               send the response in many small pieces within a second
trickle            send the response byte by byte, which would take minutes
delay              send the response half a second late
hang               read the request and never respond
status-503         send a response with this status instead of the real one
status-429-0.2     the same, with this Retry-After
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import sys
from collections import Counter
from contextlib import suppress
from typing import NamedTuple, Self

import httptools

WISH = re.compile(rb"fault=([\w-]+) (\S+) ([\w.-]+) (\d+) case=([\w.-]+);")
NO_HTTP = b"\x16\x03\x01SSH-2.0-surprise\r\n\x00\xff\r\n\r\n"
DELAY_S = 0.5
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
READ_SIZE = 65536


class Wish(NamedTuple):
    """The fault that a request's body describes."""

    place: str
    path: str
    kind: str
    times: int
    case: str

    @classmethod
    def of(cls, body: bytes) -> Self | None:
        found = WISH.search(body)
        if found is None:
            return None
        place, path, kind, times, case = (part.decode() for part in found.groups())
        return cls(place, path, kind, int(times), case)


class Message:
    """A request or response, read completely, with its raw bytes."""

    def __init__(self, parser: type[httptools.HttpRequestParser] | type[httptools.HttpResponseParser]) -> None:
        self.raw = b""
        self.body = b""
        self.path = ""
        self.is_whole = False
        self._parser = parser(self)

    def on_url(self, url: bytes) -> None:
        self.path += url.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True

    async def read(self, reader: asyncio.StreamReader) -> bool:
        """Read the message. Return whether it is complete."""
        while not self.is_whole:
            data = await reader.read(READ_SIZE)
            if not data:
                return False
            self.raw += data
            self._parser.feed_data(data)
        return True


class Place:
    """A listener and its target port."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        # A bound socket that never listens reserves the port while the place refuses connections.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port: int = self._holder.getsockname()[1]
        self._struck: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def accept(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=4096, reuse_port=True)

    async def refuse(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while await (request := Message(httptools.HttpRequestParser)).read(reader):
                kind = self._kind_for(request)
                if kind in ("reset", "hang-up", "hang", "garbage") or kind.startswith("status-"):
                    await self._in_place_of_an_answer(kind, reader, writer)
                    if not kind.startswith("status-"):
                        return
                    continue
                if upstream is None or upstream[0].at_eof():
                    upstream = await asyncio.open_connection("127.0.0.1", self.target)
                upstream[1].write(request.raw)
                answer = await while_there(reader, upstream[0])
                if answer is None or not await self._pass_on(kind, answer, writer):
                    return
        except (OSError, httptools.HttpParserError):
            reset(writer)
        finally:
            self._writers.discard(writer)
            writer.close()
            if upstream is not None:
                upstream[1].close()

    def _kind_for(self, request: Message) -> str:
        wish = Wish.of(request.body)
        if wish is None or (wish.place, wish.path) != (self.name, request.path):
            return ""
        self._struck[wish.case] += 1
        return wish.kind if self._struck[wish.case] <= wish.times else ""

    async def _in_place_of_an_answer(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if kind == "reset":
            reset(writer)
        elif kind == "garbage":
            writer.write(NO_HTTP)
        elif kind == "hang":
            await reader.read(1)
        elif kind.startswith("status-"):
            _, status, *wait = kind.split("-")
            body = b'{"error": {"message": "not now"}}'
            retry = b"retry-after: %s\r\n" % wait[0].encode() if wait else b""
            head = b"HTTP/1.1 %s No\r\n%scontent-length: %d\r\n\r\n" % (status.encode(), retry, len(body))
            writer.write(head + body)
        with suppress(OSError):
            await writer.drain()

    async def _pass_on(self, kind: str, answer: bytes, writer: asyncio.StreamWriter) -> bool:
        """Send the response with the fault applied. Return whether the connection stays open."""
        half = answer[: len(answer) // 2]
        if kind == "reset-after":
            reset(writer)
            return False
        if kind in ("reset-midway", "half"):
            writer.write(half)
            await writer.drain()
            # An immediate reset would discard the data that is still in flight.
            await asyncio.sleep(0.05)
            if kind == "reset-midway":
                reset(writer)
            return False
        if kind in ("drip", "trickle"):
            size, pause_s = (1, 0.1) if kind == "trickle" else (len(answer) // 20 + 1, 0.03)
            for start in range(0, len(answer), size):
                writer.write(answer[start : start + size])
                await writer.drain()
                await asyncio.sleep(pause_s)
            return True
        if kind == "delay":
            await asyncio.sleep(DELAY_S)
        writer.write(answer)
        await writer.drain()
        return True


async def while_there(caller: asyncio.StreamReader, upstream: asyncio.StreamReader) -> bytes | None:
    """Return the whole response, None if the server closes without one or the caller disconnects first."""
    answer = Message(httptools.HttpResponseParser)
    answering = asyncio.create_task(answer.read(upstream))
    leaving = asyncio.create_task(caller.read(1))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return answer.raw if answering.done() and answering.result() else None
    finally:
        for task in (answering, leaving):
            task.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection with RST instead of FIN."""
    raw = writer.get_extra_info("socket")
    with suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()


async def main(words: list[str]) -> None:
    places = {}
    for word in words:
        name, _, target = word.partition("=")
        places[name] = Place(name, int(target))
        await places[name].accept()
    print(*(place.port for place in places.values()), flush=True)  # noqa: T201 - tests read the ports from here
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := (await commands.readline()).decode().split():
        await getattr(places[line[1]], line[0])()
        print("done", flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

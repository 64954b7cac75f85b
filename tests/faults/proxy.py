"""A TCP proxy for each place between two tiers, which does to a request what a text within that request asks for.

`python tests/faults/proxy.py agent=9001 policy=9002 …` listens on a free port for each place, prints them in order on
one line, and passes on to the port behind `=` until its standard input ends. Anywhere in a request's body,
`fault=<place> <path> <kind> <times> case=<name>;` lets the first so many requests of that case to that path go wrong
there. What concerns a whole place comes as a line on standard input: `refuse <place>` and `accept <place>`.

reset              the request is read, and the connection reset: it never arrives
hang-up            the same, but closed in peace
reset-after        the request arrives, its answer does not: the connection is reset
reset-midway       half of the answer arrives, then a reset
half               half of the answer arrives, then the end
garbage            something else than HTTP arrives
drip               the answer arrives in many small pieces, within a second
trickle            the answer arrives byte by byte, and would take minutes
delay              the answer arrives half a second late
hang               the request is read, and nothing ever comes
status-503         an answer of this status comes in place of the real one
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
    """What a request asks for."""

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
    """One request or one answer as it came, read to its end."""

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
        """Whether it came whole."""
        while not self.is_whole:
            data = await reader.read(READ_SIZE)
            if not data:
                return False
            self.raw += data
            self._parser.feed_data(data)
        return True


class Place:
    """One listener, and the port that it stands before."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        # Bound for as long as this lives, and never listening: while it refuses, nobody else gets its port.
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
            told = b'{"error": {"message": "not now"}}'
            retry = b"retry-after: %s\r\n" % wait[0].encode() if wait else b""
            head = b"HTTP/1.1 %s No\r\n%scontent-length: %d\r\n\r\n" % (status.encode(), retry, len(told))
            writer.write(head + told)
        with suppress(OSError):
            await writer.drain()

    async def _pass_on(self, kind: str, answer: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may go on."""
        half = answer[: len(answer) // 2]
        if kind == "reset-after":
            reset(writer)
            return False
        if kind in ("reset-midway", "half"):
            writer.write(half)
            await writer.drain()
            # A reset would overtake what is still on its way.
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
    """The whole answer; None where the server ends without one, or the caller goes away before."""
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
    """Let the other end hear RST in place of FIN."""
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
    print(*(place.port for place in places.values()), flush=True)  # noqa: T201 - this is how a test learns the ports
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := (await commands.readline()).decode().split():
        await getattr(places[line[1]], line[0])()
        print("done", flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

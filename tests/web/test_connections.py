"""Limits on a server's connections: slow, silent, oversized and invalid requests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.web.connections import HEAD_BYTES, HEAD_S, SILENCE_S, SLOWEST_BYTES_S
from nemo_gym.web.shutdown import QuickShutdownServer
from tests.each_case import each_case
from tests.waiting import async_until

IDLE_S = 75
MARGIN_S = 5
"""The server's own clock may add a second while a test counts."""
PATIENCE_S = 100.0
HOST = b"Host: localhost\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK"


class Served(NamedTuple):
    """A served app that answers with the size of the body, once it may."""

    server: QuickShutdownServer
    port: int
    may_answer: asyncio.Event
    bodies: list[bytes]
    """The parts of bodies that the app has received."""

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.server.server_state.check()

    async def connect(self) -> Caller:
        known = len(self.server.server_state.connections)
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        await async_until(lambda: len(self.server.server_state.connections) > known)
        return caller

    async def until_phase(self, phase: str) -> None:
        await async_until(lambda: {each.phase for each in self.server.server_state.connections} == {phase})


class Caller(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Return all further bytes until the server closes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            # The server's system resets a connection that is closed before all bytes have been read.
            with suppress(ConnectionResetError):
                return await self.reader.read()
            return b""

    async def answer(self) -> bytes:
        """Return the next response."""
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return head + await self.reader.readexactly(length)


@asynccontextmanager
async def served(asgi: ASGIApp | None = None) -> AsyncIterator[Served]:
    """Serve an app; by default, one that answers with the size of the body and the names of the headers."""
    bodies: list[bytes] = []
    may_answer = asyncio.Event()
    may_answer.set()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_answer.wait()
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            bodies.append(message["body"])
            size, more = size + len(message["body"]), message["more_body"]
        body = b"%d" % size
        names = b" ".join(sorted(name for name, _ in scope["headers"]))
        headers = [(b"content-length", b"%d" % len(body)), (b"names", names)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        asgi or app, lifespan="off", log_config=None, timeout_keep_alive=IDLE_S, timeout_graceful_shutdown=0
    )
    server = QuickShutdownServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield Served(server, listener.getsockname()[1], may_answer, bodies)
    finally:
        server.request_stop()
        await task


@each_case(
    ("sent", "phase", "limit_s", "status"),
    [
        (b"", "idle", IDLE_S, b""),
        (b"\r\n\r\n", "idle", IDLE_S, b""),
        (b"GET / HT", "head", HEAD_S, b"HTTP/1.1 408"),
        (b"GET / HTTP/1.1\r\nHost: loc", "head", HEAD_S, b"HTTP/1.1 408"),
        (POST + b"Content-Length: 9\r\n\r\n", "body", SILENCE_S, b"HTTP/1.1 408"),
        (CHUNKED + b"4\r\nab", "body", SILENCE_S, b"HTTP/1.1 408"),
        (GET, "idle", IDLE_S, OK),
        (GET + b"\r\n", "idle", IDLE_S, OK),
        (GET + GET + b"GET /", "head", HEAD_S, OK),
    ],
)
async def test_slow_or_silent_connection_is_closed(sent, phase, limit_s, status):
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(sent)
        await serving.until_phase(phase)
        begun = await caller.answer() if status == OK else b""
        serving.pass_seconds(limit_s - MARGIN_S)
        assert not caller.reader.at_eof()
        serving.pass_seconds(2 * MARGIN_S)
        assert (begun + await caller.rest()).startswith(status)


async def test_body_that_keeps_arriving_is_accepted():
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(CHUNKED)
        part = b"a" * (SILENCE_S * SLOWEST_BYTES_S)
        for number in range(1, 4):
            await caller.send(b"%x\r\n%b\r\n" % (len(part), part))
            await async_until(lambda number=number: sum(map(len, serving.bodies)) == number * len(part))
            serving.pass_seconds(SILENCE_S - MARGIN_S)
        await caller.send(b"0\r\n\r\n")
        assert (await caller.answer()).endswith(b"%d" % (3 * len(part)))


@each_case(("begin", "piece"), [(CHUNKED, b"1\r\na\r\n"), (POST + b"Content-Length: 999999\r\n\r\n", b"a")])
async def test_body_of_one_byte_per_second_is_ended(begin, piece):
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(begin)
        await serving.until_phase("body")
        for number in range(1, SILENCE_S + 2):
            await caller.send(piece)
            await async_until(lambda number=number: len(b"".join(serving.bodies)) == number)
            serving.pass_seconds(1)
        assert (await caller.rest()).startswith(b"HTTP/1.1 408 ")


async def test_caller_who_waits_for_the_app_is_kept():
    async with served() as serving:
        for sent, more in (
            (GET, b""),
            (POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"ab"),
            # More than the server buffers, so it stops reading.
            (POST + b"Content-Length: 400000\r\n\r\n" + b"a" * 200_000, b"a" * 200_000),
        ):
            serving.may_answer.clear()
            caller = await serving.connect()
            await caller.send(sent)
            await async_until(lambda: any(each.cycle for each in serving.server.server_state.connections))
            serving.pass_seconds(2 * IDLE_S)
            serving.may_answer.set()
            if b"100-continue" in sent:
                assert await caller.reader.readline() == b"HTTP/1.1 100 Continue\r\n"
                await caller.reader.readline()
            await caller.send(more)
            assert (await caller.answer()).startswith(OK), sent[:100]
            caller.writer.close()
            await async_until(lambda: not serving.server.server_state.connections)


LARGE = b"a" * (HEAD_BYTES + 1)


@each_case(
    ("sent", "status"),
    [
        (b"GET /" + LARGE, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-Large: " + LARGE, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-Large: " + LARGE + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-Part: a\r\n" * 9000, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a:\r\n" * 20_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 12_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET / HTTP/1.0\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"host: evil.example\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ],
)
async def test_invalid_request_is_refused_and_closed(sent, status):
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(sent)
        answer = await caller.rest()
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.count(b"HTTP/1.1") == 1


@each_case("framing", [b"1;", b"0\r\nX-Large: "])
async def test_large_framing_of_a_body_is_refused(framing):
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(CHUNKED + framing)
        with suppress(ConnectionError):
            for _ in range(100):
                await caller.send(LARGE)
        await async_until(lambda: not serving.server.server_state.connections)


@each_case(
    "sent",
    [
        GET,
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET /" + LARGE[:-100] + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        POST + b"Content-Length: 100000\r\n\r\n" + b"a" * 100_000,
        CHUNKED + b"1\r\na\r\n" * 30_000 + b"0\r\n\r\n",
        POST + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_valid_request_is_answered(sent):
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(sent)
        assert (await caller.answer()).startswith(OK)


async def test_pipelined_requests_are_answered_in_order():
    async with served() as serving:
        serving.may_answer.clear()
        caller = await serving.connect()
        await caller.send(POST + b"Content-Length: 3\r\n\r\nabc" + GET + b"nonsense\r\n\r\n")
        serving.may_answer.set()
        assert b"400" not in await caller.rest()


async def test_head_in_one_read_with_another_request_is_limited():
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(GET + b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 12_000 + b"\r\n")
        assert (await caller.rest()).count(OK) <= 1


async def test_trailers_are_not_headers_of_the_request():
    async with served() as serving:
        caller = await serving.connect()
        await caller.send(CHUNKED + b"1\r\na\r\n0\r\nX-Trailer: b\r\n\r\n")
        assert b"names: host transfer-encoding\r\n" in await caller.answer()


async def test_head_is_sent_although_the_app_fails_before_the_body():
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        raise RuntimeError("the body cannot be written")

    async with served(app) as serving:
        caller = await serving.connect()
        await caller.send(GET)
        # Without these bytes, the caller would send its request again.
        assert (await caller.rest()).startswith(OK)


@each_case(
    ("method", "status", "body"),
    [
        ("GET", 200, b"0\r\n\r\n"), ("GET", 204, b""), ("GET", 304, b""), ("HEAD", 200, b""), ("HEAD", 204, b""),
        ("HEAD", 304, b""),
    ],
)  # fmt: skip
async def test_response_without_content_is_sent_at_once(method, status, body):
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body"})

    async with served(app) as serving:
        caller = await serving.connect()
        for _ in range(2):
            await caller.send(f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            async with asyncio.timeout(PATIENCE_S):
                head = await caller.reader.readuntil(b"\r\n\r\n")
                assert await caller.reader.readexactly(len(body)) == body
            assert head.startswith(f"HTTP/1.1 {status} ".encode())

"""HTTP/1.1 as our protocol speaks it: the same bytes go to it and to uvicorn's own, and the same comes back."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import queue
import random
import re
import resource
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.servers.exchange import Exchange
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


# The app


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


# The servers


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


@pytest.fixture(scope="module", autouse=True)
def _loggers_as_before() -> Iterator[None]:
    """uvicorn's configuration reaches loggers that other tests share."""
    access = logging.getLogger("uvicorn.access")
    before = access.handlers[:], access.propagate, access.level
    yield
    access.handlers, access.propagate = before[0], before[1]
    access.setLevel(before[2])


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Served]]:
    with serving(OURS, timeout_keep_alive=60) as ours, serving(THEIRS, timeout_keep_alive=60) as theirs:
        yield {OURS: ours, THEIRS: theirs}


@pytest.fixture
def both(running: dict[str, Served]) -> dict[str, Served]:
    for served in running.values():
        served.app.begin_anew()
    return running


@pytest.fixture
def ours(both: dict[str, Served]) -> Served:
    return both[OURS]


@pytest.fixture(params=list(PROTOCOLS))
def served(request: pytest.FixtureRequest, both: dict[str, Served]) -> Served:
    return both[request.param]


# The caller


class Answer(NamedTuple):
    """An answer, without what may differ."""

    line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    chunks: int = 0

    @property
    def status(self) -> int:
        return int(self.line.split(" ")[1])

    @property
    def told(self) -> Any:
        return json.loads(self.body)


class Caller:
    """One connection, byte by byte."""

    def __init__(self, served: Served) -> None:
        family = socket.AF_UNIX if isinstance(served.address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(PATIENCE_S)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self.socket.connect(served.address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        for number, data in enumerate(parts):
            if number:
                time.sleep(MOMENT_S)
            self.socket.sendall(data)

    def answer(self, method: str = "GET") -> Answer:
        """The next answer, as soon as it is whole."""
        line, *fields = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = [(name, value) for name, _, value in (field.partition(": ") for field in fields)]
        kept = tuple(sorted((name, value) for name, value in headers if name != "date"))
        known = dict(kept)
        status = int(line.split(" ")[1])
        if method == "HEAD" or status < 200 or status in (204, 304):
            return Answer(line, kept, b"")
        if known.get("transfer-encoding") != "chunked":
            return Answer(line, kept, self.take(int(known["content-length"])))
        chunks = list(iter(self.chunk, b""))
        return Answer(line, kept, b"".join(chunks), len(chunks))

    def chunk(self) -> bytes:
        size = int(self.until(b"\r\n"), 16)
        data = self.take(size)
        assert self.take(2) == b"\r\n"
        return data

    def until(self, mark: bytes) -> bytes:
        while mark not in self._held:
            self._more()
        found, _, self._held = self._held.partition(mark)
        return found

    def take(self, size: int) -> bytes:
        while len(self._held) < size:
            self._more()
        found, self._held = self._held[:size], self._held[size:]
        return found

    def rest(self, patience_s: float = PATIENCE_S) -> bytes:
        """All that comes until the server closes; a caller that waits in vain says so."""
        self.socket.settimeout(patience_s)
        try:
            while True:
                self._more()
        except EOFError:
            found, self._held = self._held, b""
        except TimeoutError:
            found, self._held = self._held + b" ... and open", b""
        self.socket.settimeout(PATIENCE_S)
        return re.sub(rb"\r\ndate: [^\r]*", b"", found)

    def last_words(self) -> bytes:
        """What comes for one more request, nothing where the connection was closed."""
        with suppress(ConnectionError):
            self.send(LAST)
        return self.rest()

    def _more(self) -> None:
        try:
            data = self.socket.recv(MEGABYTE)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError(self._held[:200])
        self._held += data


LAST = b"GET /last HTTP/1.1\r\nconnection: close\r\n\r\n"
GET = b"GET /given HTTP/1.1\r\nhost: here\r\n\r\n"


def asking(path: str = "/given", body: bytes | None = None, *headers: str, method: str = "") -> bytes:
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", "host: here", *headers]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + (body or b"")


def in_chunks(*chunks: bytes, path: str = "/given", trailer: bytes = b"") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(data), data) for data in chunks) + b"0\r\n" + trailer + b"\r\n"


def talk(served: Served, parts: Iterable[bytes], methods: Sequence[str]) -> tuple[list[Answer], bytes]:
    """The answers to what is sent, and what comes for one more request."""
    with Caller(served) as caller:
        caller.send(*parts)
        return [caller.answer(method) for method in methods], caller.last_words()


def same(both: dict[str, Served], parts: Iterable[bytes], *methods: str) -> tuple[list[Answer], bytes]:
    parts = list(parts)
    ours, theirs = (talk(served, parts, methods) for served in both.values())
    assert ours == theirs
    return ours


def said(served: Served, data: bytes, patience_s: float = PATIENCE_S) -> bytes:
    """All that comes for these bytes until the connection is closed."""
    with Caller(served) as caller:
        with suppress(ConnectionError):
            caller.send(data)
        return caller.rest(patience_s)


# Requests

REQUESTS: dict[str, bytes] = {
    **{
        f"{method} without a body": asking("/x", method=method)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "PROPFIND", "SEARCH")
    },
    **{f"{method} with a body": asking("/x", b"abc", method=method) for method in ("GET", "POST", "PUT", "DELETE")},
    "a body of no bytes": asking("/x", b""),
    "a body in chunks": in_chunks(b"abc", b"d" * 300, path="/x"),
    "a body of no chunks": in_chunks(path="/x"),
    "a chunk with an extension": asking("/x", None, "transfer-encoding: chunked", method="POST")
    + b"3;a=b\r\nabc\r\n0\r\n\r\n",
    "a chunked body with a trailer": in_chunks(b"abc", path="/x", trailer=b"x-checksum: 1\r\n"),
    "a query": asking("/x?a=1&b=%20&c"),
    "a query of nothing": asking("/x?"),
    "two question marks": asking("/x?a?b"),
    "a fragment": asking("/x?a=1#there"),
    "a fragment before a query": asking("/x#there?a=1"),
    "percents": asking("/%41%2Fb%20c%C3%A4"),
    "percents that are none": asking("/%zz%f%"),
    "percents that are no UTF-8": asking("/%ff%fe"),
    "two slashes": asking("//a//b"),
    "dots": asking("/a/../b/./c"),
    "odd characters": asking("/a;b=c,d'e(f)*!~$&+|[]{}\\^`\"<>"),
    "an absolute target": asking("http://there:80/x?a=1"),
    "an absolute target of another scheme": asking("https://u:p@there/x"),
    "all of the server": asking("*", method="OPTIONS"),
    "repeated headers": asking("/x", None, "x-a: 1", "X-A: 2", "cookie: a=1", "cookie: b=2"),
    "an empty header": asking("/x", None, "x-a:", "x-b: "),
    "blanks round a value": asking("/x", None, "x-a: \t b c \t "),
    "a value that is not ASCII": asking("/x", None, "x-a: ä\u20ac"),
    "names in capitals": asking("/x", None, "ACCEPT: a", "Content-Type: b", "X-Nemo-Gym-Run-Id: c"),
    "a name with odd characters": asking("/x", None, "x!#$%&'*+-.^_`|~9: 1"),
    "many headers": asking("/x", None, *(f"x-{number}: {number}" for number in range(300))),
    "a long header": asking("/x", None, "x-a: " + "a" * 100_000),
    "a long target": asking("/" + "a" * 30_000 + "?" + "b" * 30_000),
    "blank lines before": b"\r\n\r\n" + asking("/x"),
    "a caller that wants the connection kept": asking("/x", None, "connection: keep-alive"),
    "a caller that wants it closed": asking("/x", None, "connection: close"),
    "a caller that wants it closed, in capitals": asking("/x", None, "Connection: Close"),
    "a caller that wants it closed, among others": asking("/x", None, "connection: te, close"),
    "HTTP/1.0": b"GET /x HTTP/1.0\r\n\r\n",
    "HTTP/1.0 that wants it kept": b"GET /x HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    "HTTP/1.0 with a body": b"POST /x HTTP/1.0\r\ncontent-length: 3\r\n\r\nabc",
    "no host": b"GET /x HTTP/1.1\r\n\r\n",
    "an expectation that nobody knows": asking("/x", None, "expect: miracles"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_seen_and_answered_as_by_uvicorns_protocol(both, name):
    request = REQUESTS[name]
    (answer,), _ = same(both, [request], request.split()[0].decode())
    assert answer.status == 200


def test_what_an_app_sees_is_what_was_sent(ours):
    (answer,), last = talk(ours, [asking("/a%20b?c=d", b"e", "X-Y: z", method="PUT")], ["PUT"])
    assert answer.told == {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": "PUT",
        "root_path": "",
        "path": "/a b",
        "raw_path": "/a%20b",
        "query_string": "c=d",
        "headers": [["host", "here"], ["x-y", "z"], ["content-length", "1"]],
        "state": {"from lifespan": 1},
        "body": "e",
    }
    assert last.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_target_may_be_longer_than_uvicorns_protocol_takes(ours):
    (answer,), _ = talk(ours, [asking("/" + "a" * 100_000 + "?" + "b" * 100_000)], ["GET"])
    assert answer.told["path"] == answer.told["raw_path"] == "/" + "a" * 100_000
    assert answer.told["query_string"] == "b" * 100_000


@pytest.mark.parametrize(("target", "path"), [("http://there", "/"), ("http://there?a=1", "/")])
def test_an_absolute_target_without_a_path_means_the_root_where_uvicorn_refuses_it(ours, target, path):
    (answer,), _ = talk(ours, [asking(target)], ["GET"])
    assert answer.told["path"] == path


MALFORMED: dict[str, bytes] = {
    "an unknown method": b"FETCH / HTTP/1.1\r\n\r\n",
    "a method in small letters": b"get / HTTP/1.1\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\n\r\n",
    "a target without a slash": b"GET x HTTP/1.1\r\n\r\n",
    "a blank in the target": b"GET /a b HTTP/1.1\r\n\r\n",
    "a tunnel": b"CONNECT there:443 HTTP/1.1\r\n\r\n",
    "an unknown version": b"GET / HTTP/3.7\r\n\r\n",
    "another protocol's greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nhost\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    "a blank before the colon": b"GET / HTTP/1.1\r\nhost : x\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nx-a: b\0c\r\n\r\n",
    "a NUL in the target": b"GET /\0 HTTP/1.1\r\n\r\n",
    "a header that goes on in the next line": b"GET / HTTP/1.1\r\nx-a: b\r\n c\r\nconnection: close\r\n\r\n",
    "line ends of one character": b"GET / HTTP/1.1\nconnection: close\n\n",
    "both lengths": b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "a length that is none": b"POST / HTTP/1.1\r\ncontent-length: -3\r\n\r\nabc",
    "a length beyond all": b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\nabc",
    "a chunk's size that is none": b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk longer than it says": b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "an unknown coding": b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\nabc",
    "garbage": bytes(range(256)),
    "garbage behind a request": asking("/x") + b"\0\1\2\3",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_http_is_refused_as_by_uvicorns_protocol(both, name):
    ours, theirs = (said(served, MALFORMED[name]) for served in both.values())
    assert ours == theirs
    assert b"connection: close" in ours


@pytest.mark.parametrize(
    "pattern",
    ["GET /a%bc HTTP/1.1|x-a: b", "GET /?a%bc HTTP/1.1|x-a: b", "GET / HTTP/1.1|x%b-a: b", "GET / HTTP/1.1|x-a: b%bc"],
    ids=["the path", "the query", "a header's name", "a header's value"],
)
def test_every_byte_is_taken_or_refused_as_by_uvicorns_protocol(both, pattern):
    head = pattern.replace("|", "\r\nconnection: close\r\n").encode() + b"\r\n\r\n"
    for byte in range(256):
        data = head % bytes([byte])
        ours, theirs = (said(served, data, 0.2) for served in both.values())
        assert ours == theirs, data


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, database=None)
def _compare_a_spoilt_request(both, place, spoilt):
    request = b"POST /x?a=1 HTTP/1.1\r\nconnection: close\r\nhost: here\r\ncontent-length: 3\r\n\r\nabc"
    place %= len(request)
    data = request[:place] + spoilt + request[place + len(spoilt) :]
    ours, theirs = (said(served, data, 0.03) for served in both.values())
    # A head that ends early leaves bytes behind, which are refused before or after the answer has left.
    assert ours == theirs or b"Invalid HTTP" in ours + theirs, data


def test_spoilt_requests_are_taken_or_refused_as_by_uvicorns_protocol(both):
    _compare_a_spoilt_request(both)


# Requests in parts


def test_a_request_may_be_split_at_every_place(both):
    request = asking("/x?a=b", b"abcdef", "X-Some: thing", "expect: nothing", "cookie: a=b")
    for served in both.values():
        with Caller(served) as caller:
            caller.send(request)
            expected = caller.answer()
            for place in range(1, len(request)):
                caller.send(request[:place], request[place:])
                assert caller.answer() == expected, request[:place]


@pytest.mark.parametrize("request_", [asking("/x", b"abc", "a: b"), in_chunks(b"abc", b"defg", path="/x")])
def test_a_request_may_come_byte_by_byte(both, request_):
    (answer,), _ = same(both, (bytes([byte]) for byte in request_), "POST")
    assert answer.told["body"].startswith("abc")


BIG = random.Random(1).randbytes(5 * MEGABYTE)


@pytest.mark.parametrize(
    "request_",
    [asking("/x", BIG), in_chunks(*(BIG[start : start + 70_000] for start in range(0, len(BIG), 70_000)), path="/x")],
    ids=["with its length", "in chunks"],
)
def test_a_body_of_megabytes_comes_whole(both, request_):
    (answer,), _ = same(both, [request_], "POST")
    assert answer.told["body"] == hashlib.sha256(BIG).hexdigest()


def test_a_body_that_nobody_reads_is_held_back_until_somebody_does(served):
    async def reads_late(_scope, receive, send):
        await served.app.gate.acquire()
        for message in whole(hashlib.sha256(await read(receive)).hexdigest().encode()):
            await send(message)

    served.app.given = reads_late
    request, sent = memoryview(asking(body=BIG)), 0
    with Caller(served) as caller:
        caller.socket.settimeout(0.1)
        with suppress(TimeoutError):
            while sent < len(request):
                sent += caller.socket.send(request[sent : sent + 16_384])
        assert sent < 2 * MEGABYTE
        caller.socket.settimeout(PATIENCE_S)
        served.app.open_gate()
        caller.send(request[sent:])
        assert caller.answer().body == hashlib.sha256(BIG).hexdigest().encode()
        assert b"200 OK" in caller.last_words()


def test_an_app_that_reads_slowly_gets_a_bounded_piece_at_a_time(ours):
    pieces: list[int] = []

    async def reads_slowly(_scope, receive, send):
        message = {"more_body": True}
        while message["more_body"]:
            message = await receive()
            pieces.append(len(message["body"]))
            await asyncio.sleep(0.002)
        for answer in whole(b"read"):
            await send(answer)

    ours.app.given = reads_slowly
    (answer,), _ = talk(ours, [asking(body=BIG)], ["POST"])
    assert answer.body == b"read"
    assert sum(pieces) == len(BIG)
    assert max(pieces) < MEGABYTE


def test_a_body_that_is_answered_unread_does_not_reach_the_next_request(both):
    for served in both.values():
        served.app.given = say_without_reading
    body = b"GET /smuggled HTTP/1.1\r\n\r\n" * 20_000
    for request in (asking(body=body), in_chunks(body)):
        (_, second), _ = same(both, [request[:200], request[200:], asking("/second")], "POST", "GET")
        assert second.told["path"] == "/second"
        assert second.told["body"] == ""


async def say_without_reading(_scope: dict[str, Any], _receive: Receive, send: Send) -> None:
    for message in whole(b"unread"):
        await send(message)


# Several requests on a connection


def test_a_connection_serves_one_request_after_the_other(served):
    with Caller(served) as caller:
        for number in range(50):
            caller.send(asking(f"/{number}", b"a" * number if number % 2 else None))
            told = caller.answer().told
            assert (told["path"], told["body"]) == (f"/{number}", "a" * (number % 2 * number))


def pipelined(count: int) -> bytes:
    kinds: list[Callable[[str], bytes]] = [
        asking,
        lambda path: asking(path, b"a body", "x-one: 1"),
        lambda path: in_chunks(b"some", b"chunks", path=path),
    ]
    return b"".join(kinds[number % 3](f"/{number}?q") for number in range(count))


@pytest.mark.parametrize("count", [2, 20, 200])
def test_requests_sent_at_once_are_answered_in_order(both, count):
    answers, last = same(both, [pipelined(count)], *["GET"] * count)
    assert [answer.told["path"] for answer in answers] == [f"/{number}" for number in range(count)]
    assert b"200 OK" in last


@given(st.lists(st.integers(1, len(pipelined(20)) - 1), min_size=1, max_size=30, unique=True))
@settings(max_examples=20, deadline=None, database=None)
def _compare_split_requests(both, places):
    data = pipelined(20)
    parts = [data[begin:end] for begin, end in pairwise([0, *sorted(places), len(data)])]
    answers, _ = same(both, parts, *["GET"] * 20)
    assert [answer.told["path"] for answer in answers] == [f"/{number}" for number in range(20)]


def test_requests_sent_at_once_may_be_split_anywhere(both):
    _compare_split_requests(both)


def test_a_request_that_comes_in_parts_while_an_earlier_one_is_answered_is_whole(served):
    async def waits(_scope, receive, send):
        await read(receive)
        await served.app.gate.acquire()
        for message in whole(b"slow"):
            await send(message)

    served.app.given = waits
    following = asking("/second?a=b", b"body", "x-first: 1", "x-second: 2")
    for place in range(1, len(following), 5):
        with Caller(served) as caller:
            caller.send(GET, following[:place])
            time.sleep(MOMENT_S)
            served.app.open_gate()
            assert caller.answer().body == b"slow"
            caller.send(following[place:])
            told = caller.answer().told
        assert (told["path"], told["query_string"], told["body"]) == ("/second", "a=b", "body")
        assert [name for name, _ in told["headers"]] == ["host", "x-first", "x-second", "content-length"]


def test_many_requests_behind_a_slow_one_are_all_answered(served):
    async def waits(_scope, receive, send):
        await served.app.gate.acquire()
        await say_without_reading(_scope, receive, send)

    served.app.given = waits
    with Caller(served) as caller:
        caller.send(asking(body=b"first") + pipelined(100))
        time.sleep(0.01)
        more = pipelined(50) + asking("/big", BIG[:MEGABYTE])
        sending = threading.Thread(target=caller.send, args=[more])
        sending.start()
        time.sleep(0.01)
        served.app.open_gate()
        assert caller.answer().body == b"unread"
        answers = [caller.answer() for _ in range(151)]
        sending.join()
    assert answers[-1].told["body"] == hashlib.sha256(BIG[:MEGABYTE]).hexdigest()


def test_requests_behind_one_that_closes_the_connection_are_not_answered(both):
    answers, last = same(both, [asking("/x", None, "connection: close") + pipelined(3)], "GET")
    assert ("connection", "close") in answers[0].headers
    assert last == b""


def test_the_context_of_one_request_is_not_seen_by_the_next(ours):
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    async def sets(scope, receive, send):
        seen = variable.get()
        variable.set("set by an earlier request")
        await read(receive)
        for message in whole(seen.encode()):
            await send(message)

    ours.app.given = sets
    with Caller(ours) as caller:
        for _ in range(2):
            caller.send(GET)
            assert caller.answer().body == b"unset"
        caller.send(GET * 5)
        assert [caller.answer().body for _ in range(5)] == [b"unset"] * 5


# Expect: 100-continue

EXPECTING = b"POST /%b HTTP/1.1\r\n%b: %b\r\ncontent-length: 3\r\n\r\n"


@pytest.mark.parametrize("header", [(b"expect", b"100-continue"), (b"Expect", b"100-Continue")])
def test_a_caller_that_waits_is_told_to_go_on_when_the_app_reads(both, header):
    answers, last = same(both, [EXPECTING % (b"x", *header), b"abc"], "POST", "POST")
    assert [answer.line for answer in answers] == ["HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"]
    assert answers[1].told["body"] == "abc"
    assert b"100 Continue" not in last


@pytest.mark.parametrize("asks_after", ["the head", "the body"])
def test_a_caller_that_was_answered_is_not_told_to_go_on(both, asks_after):
    for served in both.values():
        served.app.given = answers_then_receives(after_head=asks_after == "the head")
    answers, last = same(both, [EXPECTING % (b"given", b"expect", b"100-continue"), b"abc"], "POST")
    assert answers[0].body == b"ok"
    assert b"100 Continue" not in last


def answers_then_receives(*, after_head: bool) -> Handler:
    async def answers(_scope: dict[str, Any], receive: Receive, send: Send) -> None:
        head, body = whole(b"ok")
        await send(head)
        if after_head:
            await read(receive)
        await send(body)
        assert (await receive())["type"] == "http.disconnect"

    return answers


# Upgrades


@pytest.mark.parametrize(
    "headers",
    [
        ("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eA=="),
        ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ"),
    ],
    ids=["websocket", "h2c"],
)
@pytest.mark.parametrize("body", [None, b"abc"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_an_upgrade_is_answered_as_any_request_and_ours_closes_where_uvicorn_hears_no_more(
    both, headers, body, before
):
    data = pipelined(before) + asking("/x", body, *headers)
    for served in both.values():
        with Caller(served) as caller:
            caller.send(data)
            assert [caller.answer().status for _ in range(before)] == [200] * before
            answer = caller.answer()
            # A body could already be of the other protocol.
            assert answer.told["body"] == ""
            if served.name == OURS:
                assert ("connection", "close") in answer.headers
                assert caller.last_words() == b""


# Answers

LENGTH_3 = (b"content-length", b"3")
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "with its length": whole(b"abc"),
    "with its length, in parts": [start(200, LENGTH_3), part(b"a"), part(b"b"), part(b""), part(b"c", more=False)],
    "with a length of nothing": whole(b""),
    "without a length": [start(), part(b"abc", more=False)],
    "without a length or a body": [start(), part(b"", more=False)],
    "in parts": [start(), part(b"abc"), part(b"d" * 100_000), part(b"", more=False)],
    "in parts, some of them empty": [start(), part(b""), part(b"abc"), part(b""), part(b"d"), part(b"", more=False)],
    "in parts that the app calls chunks": [
        start(200, (b"transfer-encoding", b"chunked")), part(b"abc"), part(b"d", more=False),
    ],
    "of which it is not said whether more follows": [start(), {"type": "http.response.body", "body": b"abc"}],
    "without a body": [start(), {"type": "http.response.body"}],
    "just below one piece": whole(b"a" * (64 * 1024)),
    "just above one piece": whole(b"a" * (64 * 1024 + 1)),
    "of megabytes": whole(BIG),
    "of megabytes without a length": [start(), part(BIG), part(BIG, more=False)],
    "204": [start(204), part(b"", more=False)],
    "304": [start(304, (b"etag", b"x")), part(b"", more=False)],
    "404": [start(404, LENGTH_3), part(b"abc", more=False)],
    "a status without a phrase": [start(299, LENGTH_3), part(b"abc", more=False)],
    "a status that nobody knows": [start(599, LENGTH_3), part(b"abc", more=False)],
    "without headers": [{"type": "http.response.start", "status": 200}, part(b"abc", more=False)],
    "repeated headers": [
        start(200, (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), LENGTH_3), part(b"abc", more=False),
    ],
    "names in capitals": [start(200, (b"Content-Length", b"3"), (b"X-Some", b"Thing")), part(b"abc", more=False)],
    "that closes the connection": [start(200, LENGTH_3, (b"connection", b"close")), part(b"abc", more=False)],
    "that closes it, in capitals": [start(200, LENGTH_3, (b"Connection", b"te, Close")), part(b"abc", more=False)],
}  # fmt: skip


@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_reaches_the_caller_as_by_uvicorns_protocol(both, name, method):
    for served in both.values():
        served.says(ANSWERS[name])
    same(both, [asking(body=b"x", method=method) * 2], *[method] * (1 if "closes" in name else 2))


def test_http_1_0_is_answered_as_by_uvicorns_protocol(both):
    for messages in (ANSWERS["with its length, in parts"], ANSWERS["in parts"]):
        for served in both.values():
            served.says(messages)
        same(both, [b"GET /given HTTP/1.0\r\n\r\n"], "GET")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("messages", [whole, lambda body: [start(), part(body), part(body, more=False)]])
@pytest.mark.parametrize("size", [3, 70_000])
def test_a_body_may_be_any_kind_of_bytes(both, kind, messages, size):
    for served in both.values():
        served.says(messages(kind(b"a" * size)))
    (answer,), _ = same(both, [GET], "GET")
    assert set(answer.body) == {ord("a")}


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"9"),)], ids=["in chunks", "with its length"])
def test_each_part_of_an_answer_arrives_when_it_is_sent(served, headers):
    async def streams(_scope, receive, send):
        await read(receive)
        await send(start(200, *headers))
        for body in (b"one", b"two", b"end"):
            await send(part(body))
            await served.app.gate.acquire()
        await send(part(b"", more=False))

    served.app.given = streams
    with Caller(served) as caller:
        caller.send(GET)
        caller.until(b"\r\n\r\n")
        for body in (b"one", b"two", b"end"):
            assert (caller.take(3) if headers else caller.chunk()) == body
            served.app.open_gate()
        if not headers:
            assert caller.chunk() == b""
        assert b"200 OK" in caller.last_words()


def test_the_head_of_an_answer_leaves_with_the_first_part_of_its_body_be_that_empty(ours):
    async def streams(_scope, _receive, send):
        await send(start())
        ours.app.seen.put("started")
        await ours.app.gate.acquire()
        await send(part(b""))
        await ours.app.gate.acquire()
        await send(part(b"abc", more=False))

    ours.app.given = streams
    with Caller(ours) as caller:
        caller.send(GET)
        assert ours.app.next_seen() == "started"
        assert caller.rest(0.02) == b" ... and open"
        ours.app.open_gate()
        assert caller.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
        ours.app.open_gate()
        assert (caller.chunk(), caller.chunk()) == (b"abc", b"")


def test_a_caller_that_reads_slowly_makes_the_app_wait(served):
    parts: list[int] = []

    async def floods(_scope, receive, send):
        parts.clear()
        await send(start())
        for number in range(160):
            await send(part(BIG[: 64 * 1024]))
            parts.append(number)
        await send(part(b"", more=False))

    served.app.given = floods
    with Caller(served) as caller:
        caller.send(GET)
        wait_until(lambda: has_settled(parts))
        assert len(parts) < 40
        answer = caller.answer()
        assert len(answer.body) == 160 * 64 * 1024
        assert b"200 OK" in caller.last_words()


def has_settled(things: list[int]) -> bool:
    before = len(things)
    time.sleep(0.03)
    return 0 < before == len(things)


# Apps that fail


async def raises(_scope: dict[str, Any], _receive: Receive, _send: Send) -> None:
    raise ValueError("on purpose")


async def returns(_scope: dict[str, Any], _receive: Receive, _send: Send) -> None:
    return


async def cancels_itself(_scope: dict[str, Any], _receive: Receive, _send: Send) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(PATIENCE_S)


async def begins_with_the_body(_scope: dict[str, Any], _receive: Receive, send: Send) -> None:
    await send(part(b"abc", more=False))


async def corrects_itself(_scope: dict[str, Any], _receive: Receive, send: Send) -> None:
    for wrong in (part(b"abc"), {"type": "http.response.push"}):
        with pytest.raises(RuntimeError):
            await send(wrong)
    for message in whole(b"abc"):
        await send(message)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("app", [raises, returns, cancels_itself, begins_with_the_body, corrects_itself])
def test_an_app_that_fails_before_it_answers_is_answered_for(both, app, method):
    for served in both.values():
        served.app.given = app
    (answer,), _ = same(both, [asking(method=method)], method)
    assert answer.status == (200 if app is corrects_itself else 500)


TOO_EARLY = [start(200, LENGTH_3), part(b"a")]
BROKEN: dict[str, list[dict[str, Any]]] = {
    "that ends in the midst, with its length": TOO_EARLY,
    "that ends in the midst, in chunks": [start(), part(b"a")],
    "in which the head comes twice": [*TOO_EARLY, start()],
    "in which something else comes": [*TOO_EARLY, {"type": "http.response.push"}],
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_is_broken_off_as_by_uvicorns_protocol(both, name):
    for served in both.values():
        served.says(BROKEN[name])
    ours, theirs = (said(served, GET) for served in both.values())
    assert ours == theirs
    assert ours.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("messages", "left"),
    [
        ([start(200, LENGTH_3)], b""),
        ([start()], b""),
        ([start(), start()], b""),
        ([start(200, LENGTH_3), part(b"abcd", more=False)], b""),
        ([start(200, LENGTH_3), part(b"ab", more=False)], b""),
        ([start(200, LENGTH_3), part(b"ab"), part(b"cd", more=False)], b"ab"),
        ([start(200, LENGTH_3), part(b"ab"), part(b"", more=False)], b"ab"),
        ([start(204), part(b"abc", more=False)], b""),
    ],
    ids=[
        "only a head with a length", "only a head", "two heads", "too long", "too short", "too long in parts",
        "too short in parts", "a body where there is none",
    ],
)  # fmt: skip
def test_of_an_answer_that_is_wrong_ours_sends_no_part_that_is_wrong_where_uvicorn_sends_some(ours, messages, left):
    ours.says(messages)
    came = said(ours, GET)
    assert came.partition(b"\r\n\r\n")[2] == left
    assert bool(came) == bool(left)


@pytest.mark.parametrize("lengths", [(), (LENGTH_3,)], ids=["without a length", "with a length"])
@pytest.mark.parametrize(
    "header",
    [
        (b"x-a", b"b\r\nx-evil: 1"), (b"x-a", b"b\nx-evil: 1"), (b"x-a", b"b\rx-evil: 1"), (b"x-a", b"b\r\n"),
        (b"x-a\r\nx-evil", b"1"), (b"x-a", b"\r\n\r\nHTTP/1.1 200 OK\r\nx-evil: 1"), (b"x-a", b"b\n\r"),
        (b"x-a", b"evil\0"), (b"x-a", b"evil\x7f"), (b"x evil", b"1"), (b"x-evil:", b"1"), (b"", b"evil"),
    ],
)  # fmt: skip
def test_a_header_that_is_none_never_leaves_and_ours_says_that_it_failed(ours, lengths, header):
    ours.says([start(200, *lengths, header), part(b"abc", more=False)])
    with Caller(ours) as caller:
        caller.send(GET)
        answer = caller.answer()
        assert caller.rest() == b""
    assert (answer.status, answer.body) == (500, b"Internal Server Error")
    assert "evil" not in str(answer)


@pytest.mark.parametrize("start_", [start(99), start(600), start(200, (b"content-length", b"three"))])
def test_a_head_that_is_none_ours_says_that_it_failed(ours, start_):
    ours.says([start_, part(b"abc", more=False)])
    (answer,), last = talk(ours, [GET], ["GET"])
    assert (answer.status, answer.body, last) == (500, b"Internal Server Error", b"")


def test_an_app_that_fails_after_its_answer_costs_the_next_request_nothing_where_uvicorn_closes(ours):
    async def answers_then_raises(_scope, _receive, send):
        for message in whole(b"abc"):
            await send(message)
        await ours.app.gate.acquire()
        with pytest.raises(RuntimeError):
            await send(part(b"more", more=False))
        ours.app.seen.put("refused")
        raise ValueError("on purpose")

    ours.app.given = answers_then_raises
    with Caller(ours) as caller:
        caller.send(GET)
        assert caller.answer().body == b"abc"
        caller.send(asking("/x", b"abc")[:-1])
        ours.app.open_gate()
        assert ours.app.next_seen() == "refused"
        caller.send(b"c")
        assert caller.answer().told["body"] == "abc"


def test_garbage_in_the_midst_of_an_answer_breaks_it_off_where_uvicorn_sends_another_into_it(ours):
    async def streams(_scope, receive, send):
        await send(start(200, (b"content-length", b"1000")))
        await send(part(b"abc"))
        while (await receive())["type"] != "http.disconnect":
            pass
        await send(part(b"def"))
        ours.app.seen.put("gone")

    ours.app.given = streams
    with Caller(ours) as caller:
        caller.send(GET)
        caller.until(b"\r\n\r\n")
        assert caller.take(3) == b"abc"
        caller.send(b"\0\1\2")
        assert caller.rest() == b""
    assert ours.app.next_seen() == "gone"


# Callers that leave


async def _tell_types(served: Served, receive: Receive, count: int) -> None:
    for _ in range(count):
        served.app.seen.put((await receive())["type"])


def test_an_app_that_reads_hears_that_the_caller_has_left(served):
    async def reads(_scope, receive, _send):
        try:
            await read(receive)
        except Left:
            await _tell_types(served, receive, 2)

    served.app.given = reads
    with Caller(served) as caller:
        caller.send(asking(body=b"abcdef")[:-3])
    assert [served.app.next_seen() for _ in range(2)] == ["http.disconnect"] * 2


def test_an_app_that_waits_hears_that_the_caller_has_left(served):
    _leave_while_the_app_waits(served, b"")


@pytest.mark.parametrize("behind", [1, 5])
def test_it_hears_of_it_with_requests_behind_its_own_where_uvicorns_protocol_does_not_tell(ours, behind):
    _leave_while_the_app_waits(ours, pipelined(behind))


def _leave_while_the_app_waits(served: Served, behind: bytes) -> None:
    async def waits(_scope, receive, _send):
        await read(receive)
        served.app.seen.put("waits")
        await _tell_types(served, receive, 3)

    served.app.given = waits
    with Caller(served) as caller:
        caller.send(asking(body=b"abc") + behind)
        assert served.app.next_seen() == "waits"
    assert [served.app.next_seen() for _ in range(3)] == ["http.disconnect"] * 3


def test_all_parts_of_an_app_that_wait_hear_that_the_caller_has_left(served):
    async def waits(_scope, receive, _send):
        await read(receive)
        # Some stop listening, and that is not the end of the others.
        impatient = [asyncio.ensure_future(receive()) for _ in range(3)]
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(_tell_types(served, receive, 1))
            await asyncio.sleep(0)
            for listener in impatient:
                listener.cancel()
            served.app.seen.put("waits")

    served.app.given = waits
    with Caller(served) as caller:
        caller.send(GET)
        assert served.app.next_seen() == "waits"
    assert [served.app.next_seen() for _ in range(3)] == ["http.disconnect"] * 3


def test_an_app_that_waits_for_a_full_socket_goes_on_when_the_caller_leaves(served):
    parts: list[int] = []

    async def floods(_scope, receive, send):
        parts.clear()
        await read(receive)
        await send(start())
        for number in range(1000):
            await send(part(BIG[: 64 * 1024]))
            parts.append(number)
        await _tell_types(served, receive, 1)

    served.app.given = floods
    with Caller(served) as caller:
        caller.send(GET)
        wait_until(lambda: has_settled(parts))
        assert len(parts) < 40
    assert served.app.next_seen() == "http.disconnect"
    assert len(parts) == 1000


def test_an_app_that_was_heard_to_the_end_is_told_so(served):
    async def listens(_scope, receive, send):
        await read(receive)
        async with asyncio.TaskGroup() as group:
            group.create_task(_tell_types(served, receive, 2))
            for message in whole(b"abc"):
                await send(message)

    served.app.given = listens
    with Caller(served) as caller:
        caller.send(GET)
        assert caller.answer().body == b"abc"
        assert [served.app.next_seen() for _ in range(2)] == ["http.disconnect"] * 2
        assert b"200 OK" in caller.last_words()


def test_a_caller_that_shuts_its_half_counts_as_gone(served):
    async def waits(_scope, receive, send):
        await read(receive)
        await _tell_types(served, receive, 1)
        for message in whole(b"abc"):
            await send(message)
        served.app.seen.put("ended")

    served.app.given = waits
    with Caller(served) as caller:
        caller.send(GET)
        time.sleep(0.005)
        caller.socket.shutdown(socket.SHUT_WR)
        assert caller.rest() == b""
    assert [served.app.next_seen() for _ in range(2)] == ["http.disconnect", "ended"]


# Connections


def test_an_idle_connection_holds_nothing_of_its_requests():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.collect()
    before = alive(Exchange) | alive(HttpProtocol)
    gc.disable()
    callers: list[Caller] = []
    try:
        with serving(OURS, timeout_keep_alive=60) as served:
            for _ in range(min(2000, hard // 2 - 200)):
                callers.append(Caller(served))
                callers[-1].send(asking("/x", b"abc") if len(callers) % 2 else asking("/x", b"abc") * 2)
            for number, caller in enumerate(callers):
                assert caller.answer().told["body"] == "abc"
                assert number % 2 == 0 or caller.answer().status == 200
            wait_until(lambda: not served.server.server_state.tasks)
            assert len(served.server.server_state.connections) == len(callers)
            # Counted with the collector off: nothing had to be found by it.
            assert not alive(Exchange) - before
            assert b"200 OK" in callers[-1].last_words()
            for caller in callers:
                caller.socket.close()
            wait_until(lambda: not served.server.server_state.connections)
            wait_until(lambda: not alive(HttpProtocol) - before)
    finally:
        gc.enable()
        for caller in callers:
            caller.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def alive(kind: type) -> set[int]:
    return {id(thing) for thing in gc.get_objects() if isinstance(thing, kind)}


def test_an_app_whose_caller_has_left_leaves_nothing_behind_either(ours):
    async def waits(_scope, receive, _send):
        with suppress(Left):
            await read(receive)
        await receive()
        ours.app.seen.put("gone")

    ours.app.given = waits
    gc.collect()
    before = alive(Exchange)
    gc.disable()
    try:
        with Caller(ours) as caller:
            caller.send(asking(body=b"abc") * 2)
            wait_until(lambda: ours.server.server_state.tasks)
        assert ours.app.next_seen() == "gone"
        wait_until(lambda: not ours.server.server_state.tasks)
        wait_until(lambda: not alive(Exchange) - before)
    finally:
        gc.enable()


@on_each_at_once
def test_a_connection_that_is_idle_for_too_long_is_closed_and_one_that_is_used_is_not(name):
    with serving(name, timeout_keep_alive=0.2) as served, Caller(served) as used, Caller(served) as idle:
        fresh, partial, busy = Caller(served), Caller(served), Caller(served)
        served.app.given = lambda scope, receive, send: _answer_after(0.35, send)
        for caller in (used, idle, partial):
            caller.send(asking("/x"))
            assert caller.answer().status == 200
        began = time.monotonic()
        busy.send(GET)
        partial.send(asking("/x", b"abc")[:30])
        while time.monotonic() - began < 0.3:
            used.send(asking("/x"))
            assert used.answer().status == 200
            time.sleep(0.01)
        assert idle.rest(0.05) == b""
        partial.send(asking("/x", b"abc")[30:])
        assert partial.answer().told["body"] == "abc"
        assert busy.answer().body == b"late"
        # One that has not asked anything yet is no idle one.
        fresh.send(asking("/x"))
        assert fresh.answer().status == 200
        for caller in (used, fresh, partial, busy):
            assert caller.rest() == b""
            caller.socket.close()


async def _answer_after(seconds: float, send: Send) -> None:
    await asyncio.sleep(seconds)
    for message in whole(b"late"):
        await send(message)


@on_each_at_once
def test_a_server_that_stops_answers_what_is_under_way_and_closes_what_is_idle(name):
    with serving(name) as served:

        async def streams(_scope, _receive, send):
            await send(start())
            await send(part(b"abc"))
            served.app.seen.put("streams")
            await asyncio.sleep(0.15)
            await send(part(b"def", more=False))

        with Caller(served) as idle, Caller(served) as busy, Caller(served) as streaming:
            idle.send(asking("/x"))
            assert idle.answer().status == 200
            served.app.given = streams
            streaming.send(GET)
            assert served.app.next_seen() == "streams"
            served.app.given = lambda scope, receive, send: _answer_after(0.15, send)
            busy.send(GET)
            time.sleep(0.01)
            served.stop()
            assert idle.rest() == b""
            answer = busy.answer()
            assert answer.body == b"late"
            assert ("connection", "close") in answer.headers
            assert streaming.answer().body == b"abcdef"
            assert busy.rest() == streaming.rest() == b""
        served.thread.join(PATIENCE_S)


@on_each_at_once
def test_a_server_that_stops_cancels_what_does_not_end(name):
    with serving(name, timeout_graceful_shutdown=0.05) as served, Caller(served) as caller:
        served.app.given = lambda scope, receive, send: _answer_after(PATIENCE_S, send)
        caller.send(GET)
        time.sleep(0.01)
        served.stop()
        assert caller.answer().status == 500
        assert caller.rest() == b""


@pytest.mark.parametrize("name", PROTOCOLS)
def test_requests_are_logged_where_that_is_asked_for(name):
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.put(re.sub(r":\d+ -", ":PORT -", record.getMessage()))

    logger, handler = logging.getLogger("uvicorn.access"), Keeping()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with serving(name, access_log=True) as served:
            served.app.given = raises
            talk(served, [asking("/a%20b?c=d") + GET], ["GET", "GET"])
    finally:
        logger.removeHandler(handler)
    assert [lines.get(timeout=PATIENCE_S) for _ in range(2)] == [
        '127.0.0.1:PORT - "GET /a%20b?c=d HTTP/1.1" 200',
        '127.0.0.1:PORT - "GET /given HTTP/1.1" 500',
    ]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_requests_come_over_unix_sockets_too(name, tmp_path):
    with serving(name, path=tmp_path / "s") as served:
        addresses: list[Any] = []

        async def tells(scope, receive, send):
            addresses.extend((scope["server"], scope["client"]))
            await echo(scope, receive, send)

        served.app.given = tells
        (answer,), _ = talk(served, [asking(body=BIG)], ["POST"])
        assert answer.told["body"] == hashlib.sha256(BIG).hexdigest()
        # Ours says where such a caller is: an author's code may well ask.
        assert addresses == [(str(tmp_path / "s"), None), None if name == THEIRS else ("127.0.0.1", 0)]

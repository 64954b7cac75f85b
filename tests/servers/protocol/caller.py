"""One connection to a server, byte by byte, and what is sent through it."""

from __future__ import annotations

import json
import random
import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tests.servers.protocol.served import MEGABYTE, MOMENT_S, PATIENCE_S, SOCKET_BYTES, Served


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


BIG = random.Random(1).randbytes(5 * MEGABYTE)


def pipelined(count: int) -> bytes:
    kinds: list[Callable[[str], bytes]] = [
        asking,
        lambda path: asking(path, b"a body", "x-one: 1"),
        lambda path: in_chunks(b"some", b"chunks", path=path),
    ]
    return b"".join(kinds[number % 3](f"/{number}?q") for number in range(count))

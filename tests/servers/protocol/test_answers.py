"""What an answer may be, and that each part of it arrives when it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.protocol.caller import BIG, GET, Caller, asking, same
from tests.servers.protocol.served import LENGTH_3, has_settled, part, read, start, wait_until, whole

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

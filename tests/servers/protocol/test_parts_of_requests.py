"""Requests that come in parts, and bodies that are read late, slowly or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress

import pytest

from tests.servers.protocol.caller import BIG, Caller, asking, in_chunks, same, talk
from tests.servers.protocol.served import MEGABYTE, PATIENCE_S, read, say_without_reading, whole


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

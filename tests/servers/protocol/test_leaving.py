"""Callers that leave: how the app hears of it."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests.servers.protocol.caller import BIG, GET, Caller, asking, pipelined
from tests.servers.protocol.served import Left, Receive, Served, has_settled, part, read, start, wait_until, whole


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

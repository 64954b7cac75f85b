"""Several requests on a connection: one after the other, and at once."""

from __future__ import annotations

import hashlib
import threading
import time
from contextvars import ContextVar
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.protocol.caller import BIG, GET, Caller, asking, pipelined, same
from tests.servers.protocol.served import MEGABYTE, MOMENT_S, read, say_without_reading, whole


def test_a_connection_serves_one_request_after_the_other(served):
    with Caller(served) as caller:
        for number in range(50):
            caller.send(asking(f"/{number}", b"a" * number if number % 2 else None))
            told = caller.answer().told
            assert (told["path"], told["body"]) == (f"/{number}", "a" * (number % 2 * number))


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

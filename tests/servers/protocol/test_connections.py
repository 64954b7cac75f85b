"""Connections and servers: how they idle, stop, log, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import queue
import re
import resource
import time
from contextlib import suppress
from typing import Any

import pytest

from nemo_gym.servers.exchange import Exchange
from nemo_gym.servers.protocol import HttpProtocol
from tests.servers.protocol.caller import BIG, GET, Caller, asking, talk
from tests.servers.protocol.served import (
    OURS,
    PATIENCE_S,
    PROTOCOLS,
    THEIRS,
    Left,
    Send,
    echo,
    on_each_at_once,
    part,
    raises,
    read,
    serving,
    start,
    wait_until,
    whole,
)


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

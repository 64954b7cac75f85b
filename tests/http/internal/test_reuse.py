"""Connections that are safe to reuse are, and no others."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from nemo_gym.http.internal import InternalClient
from tests.http.faulty_server import FaultyServer
from tests.http.internal.asking import ask, on_both_loops


@on_both_loops
async def test_the_connection_used_last_is_used_next(server):
    async with InternalClient() as client:
        await asyncio.gather(*(ask(client, server, "/meet/3") for _ in range(3)))
        told = [(await ask(client, server, "/tell")).body.split()[2] for _ in range(5)]
    assert server.connections == 3
    assert len(set(told)) == 1


@on_both_loops
async def test_no_connection_ever_carries_two_requests_at_once(server):
    async with InternalClient() as client:
        for _ in range(5):
            await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(20)))
    assert server.connections == 20
    assert server.most_at_once == 20


@on_both_loops
async def test_a_client_that_lets_go_before_the_server_does_never_loses_the_race():
    with FaultyServer(idle_s=0.20) as server:
        async with InternalClient(idle_s=0.08) as client:
            chance = random.Random(1)

            async def call_now_and_then() -> None:
                for _ in range(6):
                    assert (await ask(client, server, "/echo", "POST", body=b"again")).body == b"again"
                    await asyncio.sleep(chance.uniform(0.07, 0.24))

            await asyncio.gather(*(call_now_and_then() for _ in range(200)))
    assert len(server.requests) == 1200


@on_both_loops
async def test_connections_that_the_server_closed_while_idle_are_not_used():
    with FaultyServer(idle_s=0.05) as server:
        async with InternalClient() as client:
            for _ in range(2):
                known = server.connections
                replies = await asyncio.gather(*(ask(client, server, "/tell") for _ in range(200)))
                assert min(int(reply.body.split()[2]) for reply in replies) == known
                await asyncio.sleep(0.3)


@on_both_loops
async def test_a_connection_closed_while_the_event_loop_was_busy_is_not_used():
    with FaultyServer(idle_s=0.05) as server:
        async with InternalClient() as client:
            await ask(client, server, "/echo")
            time.sleep(0.3)  # noqa: ASYNC251 - the loop must not come round to notice
            assert (await ask(client, server, "/echo", "POST", body=b"fine")).body == b"fine"
    assert server.connections == 2


@on_both_loops
async def test_a_connection_older_than_the_idle_limit_is_not_used_even_where_the_server_keeps_it(server):
    async with InternalClient(idle_s=0.05) as client:
        await ask(client, server, "/echo")
        time.sleep(0.1)  # noqa: ASYNC251 - so that no timer has come to close it
        await ask(client, server, "/echo")
    assert server.connections == 2


@on_both_loops
async def test_an_answer_that_nobody_asked_for_is_never_taken_for_the_next_one(server):
    async with InternalClient() as client:
        for path in ("/surplus", "/afterthought"):
            assert (await ask(client, server, path)).body == b"mine"
            await asyncio.sleep(0.1)
            assert (await ask(client, server, "/echo", "POST", body=b"my own")).body == b"my own"


@on_both_loops
async def test_idle_connections_are_let_go_without_further_requests(server):
    async with InternalClient(idle_s=0.05) as client:
        await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(10)))
        assert server_side_connections(server) == 10
        await asyncio.sleep(0.3)
        assert server_side_connections(server) == 0


def server_side_connections(server: Any) -> int:
    """How many connections the server still serves."""
    return len(server._served)


@on_both_loops
async def test_cancelling_a_request_closes_its_connection_and_no_other(server):
    async with InternalClient() as client:
        await ask(client, server, "/echo")
        under_way = asyncio.create_task(ask(client, server, "/slow/0.2"))
        beside = asyncio.create_task(ask(client, server, "/slow/0.2"))
        await asyncio.sleep(0.1)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        assert (await ask(client, server, "/echo", "POST", body=b"clean")).body == b"clean"
        assert (await beside).body == b"at last"
    assert server.connections == 3


@on_both_loops
async def test_a_cancelled_request_gives_up_its_place_at_once(server):
    async with InternalClient(max_connections=1) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(client, server, "/silent"), 0.05)
        assert (await asyncio.wait_for(ask(client, server, "/echo", "POST", body=b"mine"), 1)).body == b"mine"


@on_both_loops
async def test_requests_cancelled_at_any_moment_leave_no_answer_for_others(server):
    chance = random.Random(3)
    async with InternalClient(max_connections=10) as client:

        async def call(number: int) -> None:
            body = b"%d" % number
            try:
                async with asyncio.timeout(chance.choice([0.0, 0.001, 0.003, 0.01, 5])):
                    assert (await ask(client, server, "/echo", "POST", body=body)).body == body
            except TimeoutError:
                pass

        for _ in range(5):
            await asyncio.gather(*(call(number) for number in range(200)))
        replies = await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(30)))
        assert all(reply.ok for reply in replies)
    assert server.most_at_once <= 20, "ten, and at most as many that were given up and not yet noticed"

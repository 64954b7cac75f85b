"""Connections are reused only if that is safe."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from typing import Any

import pytest

from nemo_gym.http.internal import InternalClient
from nemo_gym.http.pool import Origin
from nemo_gym.http.reply import NotConnected
from tests.http.faulty_server import FaultyServer
from tests.http.internal.asking import PATIENCE_S, ask, let_meet, on_both_loops
from tests.waiting import async_until


@on_both_loops
async def test_most_recent_connection_is_reused_first(server):
    async with InternalClient() as client:
        await asyncio.gather(*(ask(client, server, "/meet/3") for _ in range(3)))
        used = [(await ask(client, server, "/describe")).body.split()[2] for _ in range(5)]
    assert server.connections == 3
    assert len(set(used)) == 1


@on_both_loops
async def test_connection_carries_one_request_at_a_time(server):
    async with InternalClient() as client:
        for number in range(5):
            # None of them is answered before all have arrived.
            await asyncio.gather(*(ask(client, server, f"/meet/{number}/20") for _ in range(20)))
    assert server.connections == 20
    assert server.most_at_once == 20


@on_both_loops
@pytest.mark.parametrize(("idle_s", "connections"), [(0.01, 3), (600.0, 1)])
async def test_connection_is_reused_until_the_idle_limit(idle_s, connections):
    with FaultyServer() as server:
        async with InternalClient(idle_s=idle_s) as client:
            for _ in range(3):
                assert (await ask(client, server, "/echo", "POST", body=b"again")).body == b"again"
                await asyncio.sleep(0.05)
    assert server.connections == connections


@on_both_loops
async def test_closed_idle_connections_are_not_reused():
    with FaultyServer(idle_s=0.05) as server:
        async with InternalClient() as client:
            for _ in range(2):
                known = server.connections
                replies = await asyncio.gather(*(ask(client, server, "/describe") for _ in range(200)))
                assert min(int(reply.body.split()[2]) for reply in replies) == known
                await async_until(lambda: not server_side_connections(server))


@on_both_loops
async def test_connection_closed_unnoticed_is_not_reused():
    with FaultyServer(idle_s=0.05) as server:
        async with InternalClient() as client:
            await ask(client, server, "/echo")
            deadline = time.monotonic() + PATIENCE_S
            while server_side_connections(server):
                assert time.monotonic() < deadline
                time.sleep(0.01)  # noqa: ASYNC251 - the loop must not notice the close
            assert (await ask(client, server, "/echo", "POST", body=b"fine")).body == b"fine"
    assert server.connections == 2


@on_both_loops
async def test_connection_beyond_the_idle_limit_is_not_reused(server):
    async with InternalClient(idle_s=0.05) as client:
        await ask(client, server, "/echo")
        time.sleep(0.1)  # noqa: ASYNC251 - so that no timer can close it
        await ask(client, server, "/echo")
    assert server.connections == 2


@on_both_loops
async def test_unrequested_reply_is_discarded(server):
    async with InternalClient() as client:
        for path in ("/surplus", "/afterthought"):
            assert (await ask(client, server, path)).body == b"mine"
            # Then the second reply has been sent.
            await async_until(lambda: not server.at_once)
            assert (await ask(client, server, "/echo", "POST", body=b"my own")).body == b"my own"


@on_both_loops
async def test_idle_connections_are_closed_without_further_requests(server):
    async with InternalClient(idle_s=0.05) as client:
        await asyncio.gather(*(ask(client, server, "/meet/10") for _ in range(10)))
        assert server.connections == 10
        await async_until(lambda: not server_side_connections(server))


def server_side_connections(server: Any) -> int:
    """Return how many connections the server still serves."""
    return len(server._served)


@on_both_loops
async def test_cancelled_request_closes_only_its_connection(server):
    async with InternalClient() as client:
        await ask(client, server, "/echo")
        under_way = asyncio.create_task(ask(client, server, "/silent"))
        other = asyncio.create_task(ask(client, server, "/meet/3"))
        await async_until(lambda: server.at_once == 2 and "/meet/3" in server.meetings)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        assert (await ask(client, server, "/echo", "POST", body=b"clean")).body == b"clean"
        let_meet(server, "/meet/3")
        assert (await other).body == b"met"
    assert server.connections == 3


@on_both_loops
async def test_cancelled_request_frees_its_place(server):
    async with InternalClient(max_connections=1) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(client, server, "/silent"), 0.05)
        assert (await asyncio.wait_for(ask(client, server, "/echo", "POST", body=b"mine"), 60)).body == b"mine"


@on_both_loops
async def test_cancelled_requests_leave_no_replies_to_others(server):
    chance = random.Random(3)
    async with InternalClient(max_connections=10) as client:

        async def call(number: int) -> None:
            body = b"%d" % number
            assert sum(len(pool.connections) for pool in client._pools.values()) <= 10
            try:
                async with asyncio.timeout(chance.choice([0.0, 0.001, 0.003, 0.01, 5])):
                    assert (await ask(client, server, "/echo", "POST", body=body)).body == body
            except TimeoutError:
                pass

        for _ in range(5):
            await asyncio.gather(*(call(number) for number in range(200)))
        replies = await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(30)))
        assert all(reply.ok for reply in replies)
        assert sum(len(pool.connections) for pool in client._pools.values()) <= 10


@on_both_loops
async def test_addresses_without_connections_are_forgotten(server):
    def known() -> int:
        return sum(isinstance(each, Origin) for each in gc.get_objects())

    before = known()
    async with InternalClient(idle_s=0.05) as client, asyncio.timeout(60):
        for number in range(1, 51):
            with pytest.raises(NotConnected):
                await client.request("GET", f"127.0.0.{number}", 9, "/")
        await ask(client, server, "/echo")
        while known() - before > 1:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.05)
        # The client stays usable.
        assert (await ask(client, server, "/echo", "POST", body=b"again")).body == b"again"

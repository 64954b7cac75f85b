"""Many requests at once, limits on connections, and the end of the client."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading

import pytest
import uvloop

from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import BrokenReply, NotConnected, Timeouts
from tests.http.internal.asking import PATIENCE_S, ask, let_meet, on_both_loops
from tests.waiting import async_until


@on_both_loops
async def test_two_thousand_requests_run_concurrently(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6000:
        pytest.skip(f"this machine allows {hard} open files; client and server need 4,000 here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    # The connections are opened by one loop, so the last one waits for all others.
    async with InternalClient(timeouts=Timeouts(connect_s=PATIENCE_S)) as client:
        replies = await asyncio.gather(*(ask(client, server, "/meet/2000") for _ in range(2000)))
    assert {reply.body for reply in replies} == {b"met"}
    assert server.connections == 2000


@on_both_loops
async def test_requests_beyond_the_limit_wait_in_order(server):
    order: list[int] = []
    async with InternalClient(max_connections=4) as client:

        async def call(number: int) -> None:
            await ask(client, server, "/slow/0.01")
            order.append(number)

        await asyncio.gather(*(call(number) for number in range(40)))
    assert server.connections == 4
    assert server.most_at_once == 4
    assert all(abs(place - number) < 8 for place, number in enumerate(order)), "first come, first served"


@pytest.mark.parametrize("path", ["/close-before", "/connection-close", "/garbage"])
@on_both_loops
async def test_lost_connection_frees_a_place(server, path):
    async with InternalClient(max_connections=2) as client:
        await asyncio.gather(*(ask(client, server, path) for _ in range(20)), return_exceptions=True)
        assert (await ask(client, server, "/echo", "POST", body=b"room")).body == b"room"
    assert server.connections == 21
    assert server.most_at_once <= 4


@on_both_loops
async def test_waiting_for_a_free_connection_times_out(server):
    async with InternalClient(max_connections=1) as client:
        holder = asyncio.create_task(ask(client, server, "/meet/2"))
        await async_until(lambda: "/meet/2" in server.meetings)
        with pytest.raises(NotConnected, match=r"none of the 1 connections .* became free within 0.1 s"):
            await ask(client, server, "/echo", timeouts=Timeouts(queue_s=0.1))
        patient = asyncio.create_task(ask(client, server, "/echo"))
        let_meet(server, "/meet/2")
        assert (await holder).ok
        assert (await patient).ok
    assert server.connections == 1


@on_both_loops
async def test_refused_connections_free_their_place():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with InternalClient(max_connections=2) as client:
            for _ in range(3):
                failures = await asyncio.gather(
                    *(client.request("GET", *bound.getsockname(), "/x") for _ in range(10)), return_exceptions=True
                )
                assert {type(failure) for failure in failures} == {NotConnected}


# Closing, and several loops


@on_both_loops
async def test_closing_fails_current_and_later_requests(server):
    client = InternalClient(max_connections=2)
    under_way = [asyncio.create_task(ask(client, server, "/silent")) for _ in range(4)]
    await async_until(lambda: server.at_once == 2)
    await client.close()
    ends = await asyncio.wait_for(asyncio.gather(*under_way, return_exceptions=True), 60)
    assert [type(end) for end in ends] == [BrokenReply, BrokenReply, NotConnected, NotConnected]
    assert all("client was closed" in str(end) for end in ends)
    with pytest.raises(NotConnected, match="has been closed"):
        await ask(client, server, "/echo")
    await client.close()


def test_one_client_serves_several_event_loops(server):
    client = InternalClient()

    async def call() -> bytes:
        return (await ask(client, server, "/slow/0.05")).body

    async def call_and_close() -> None:
        await call()
        await client.close()

    bodies: list[bytes] = []
    threads = [threading.Thread(target=lambda: bodies.append(asyncio.run(call()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bodies == [b"at last"] * 4
    assert uvloop.run(call()) == b"at last"
    asyncio.run(call_and_close())

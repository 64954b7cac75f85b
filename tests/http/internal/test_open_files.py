"""Requests of a process that may not open another file: they wait until a connection closes."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nemo_gym.context.current import Work, begin_work, end_work
from nemo_gym.http.endpoint import NeMoGymAsyncOpenAI
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.open_files import RESERVED_FILES
from nemo_gym.http.reply import NoFreeConnection, Timeouts
from tests.http.internal.asking import ask, on_both_loops

pytestmark = pytest.mark.slow

ROOM = 8
REQUESTS = 400


@contextmanager
def little_room(room: int = ROOM) -> Iterator[None]:
    """Leave this process room for about this many more connections."""
    # Otherwise garbage of earlier tests would close files later.
    gc.collect()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(4 * RESERVED_FILES)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1] + 1 + room + RESERVED_FILES, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in opened:
            os.close(each)


@on_both_loops
async def test_requests_wait_in_order_for_a_file(server):
    order: list[int] = []
    async with InternalClient() as client:

        async def call(number: int) -> None:
            assert (await ask(client, server, "/slow/0.01")).ok
            order.append(number)

        with little_room():
            await asyncio.gather(*(call(number) for number in range(REQUESTS)))
    assert server.most_at_once < REQUESTS / 4
    assert all(abs(place - number) < REQUESTS / 4 for place, number in enumerate(order)), "first come, first served"


@on_both_loops
async def test_idle_connections_make_room_for_other_servers(server, another_server):
    async with InternalClient() as client, InternalClient() as other:
        with little_room():
            await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(ROOM)))
            replies = [ask(each, another_server, "/slow/0.01") for each in (client, other) for _ in range(2 * ROOM)]
            assert all(reply.ok for reply in await asyncio.gather(*replies))


@on_both_loops
async def test_files_that_other_code_closes_are_used(server):
    async with InternalClient() as client:
        with little_room():
            others = [os.open(os.devnull, os.O_RDONLY) for _ in range(2 * ROOM)]
            waiting = asyncio.create_task(ask(client, server, "/echo"))
            await asyncio.sleep(0)
            for each in others:
                os.close(each)
            assert (await waiting).ok


@on_both_loops
async def test_waiting_for_a_file_ends_with_the_time(server):
    async with InternalClient() as client:
        waits = []
        token = begin_work(Work(waits=waits))
        with little_room(0):
            with pytest.raises(NoFreeConnection, match=r"no free connection within [\d.]+ s: .* raise ulimit -n"):
                await ask(client, server, "/echo", timeouts=Timeouts(total_s=0.3))
            waiting = asyncio.create_task(ask(client, server, "/echo"))
            # It waits after its first step.
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        end_work(token)
        # A server reports this wait when the rollout's time is over.
        assert str(waits[-1]).endswith("(this process has too many open files; raise ulimit -n)")
        assert (await ask(client, server, "/echo")).ok


async def test_calls_with_aiohttp_wait_for_a_file(endpoint):
    # A redirect needs aiohttp.
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/moved/v1", api_key="none")
    with little_room():
        answers = [client.create_chat_completion(model="slow:0.05", messages=[]) for _ in range(5 * ROOM)]
        assert all(answer["choices"] for answer in await asyncio.gather(*answers))
    await client.aclose()

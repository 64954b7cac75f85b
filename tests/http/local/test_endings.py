"""Calls within a process that take too long or are given up, and what becomes of the handler."""

from __future__ import annotations

import asyncio
import time

import pytest

from nemo_gym.http.reply import ReplyTimedOut, Timeouts
from nemo_gym.schemas.rollout import TIME_LEFT_HEADER
from tests.http.local.app import noted


@pytest.mark.parametrize(
    ("timeouts", "limit"),
    [(Timeouts(total_s=0.1), "total_s"), (Timeouts(read_s=0.1), "read_s")],
)
async def test_a_handler_that_never_answers_is_given_up_in_time_and_hears_of_it(timeouts, limit, port, client):
    began_at = time.monotonic()
    with pytest.raises(ReplyTimedOut, match=limit) as told:
        await client.request("GET", "127.0.0.1", port, "/never", timeouts=timeouts)
    assert 0.1 <= time.monotonic() - began_at < 2
    assert told.value.was_sent


async def test_a_limit_of_the_callers_own_counts_also_where_the_rollout_has_more_time(port, client):
    headers = [(TIME_LEFT_HEADER.encode(), b"30.000")]
    with pytest.raises(ReplyTimedOut):
        await client.request("GET", "127.0.0.1", port, "/never", headers=headers, timeouts=Timeouts(total_s=0.1))


async def test_a_handler_is_cancelled_with_its_caller(local, port):
    calling = asyncio.create_task(local.request("GET", "127.0.0.1", port, "/never"))
    await asyncio.sleep(0.02)
    assert noted == ["asked"]
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert noted == ["asked", "ended"]


async def test_a_caller_in_a_group_of_tasks_is_cancelled_with_the_group(local, port):
    async def fail():
        await asyncio.sleep(0.02)
        raise ValueError("the other one")

    async def both():
        async with asyncio.TaskGroup() as group:
            group.create_task(local.request("GET", "127.0.0.1", port, "/never"))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as told:
        await both()
    assert [type(each) for each in told.value.exceptions] == [ValueError]
    assert noted == ["asked", "ended"]


async def test_a_callers_own_timeout_ends_the_handler_and_is_the_callers_to_see(local, port):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await local.request("GET", "127.0.0.1", port, "/never")
    assert noted == ["asked", "ended"]


async def test_a_handler_that_does_not_let_itself_be_cancelled_is_heard_out(local, port):
    reply = await local.request("GET", "127.0.0.1", port, "/swallows", timeouts=Timeouts(total_s=0.05))
    assert (reply.body, noted) == (b"all the same", ["swallowed"])


async def test_who_listens_for_the_callers_leaving_hears_of_it_after_the_answer(port, client):
    reply = await asyncio.wait_for(client.request("GET", "127.0.0.1", port, "/listens"), 5)
    assert reply.body == b"answered"
    # The server, in its thread, may still be about to hear of it.
    for _ in range(1000):
        if len(noted) < 3:
            await asyncio.sleep(0.005)
    assert noted == ["still there", "http.disconnect", "http.disconnect"]

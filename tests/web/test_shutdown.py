"""A server stops immediately, but not before its running calls have been answered."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
import uvicorn

from nemo_gym.errors import ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.web.shutdown import answering

TICK_OF_UVICORN_S = 0.1
"""The minimum time that uvicorn's own server needs to stop."""


class Calls:
    """An app with slow calls that records their cancellation."""

    def __init__(self, lasts_s: float) -> None:
        self.lasts_s = lasts_s
        self.begun = asyncio.Event()
        self.were_cancelled = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.set()
        try:
            await asyncio.sleep(self.lasts_s)
        except asyncio.CancelledError:
            self.were_cancelled = True
            raise
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def listening() -> tuple[socket.socket, int]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, listener.getsockname()[1]


async def test_idle_server_stops_at_once_despite_open_connections():
    took_s = []
    for _ in range(5):
        listener, port = listening()
        config = uvicorn.Config(Calls(0), lifespan="off", log_config=None, timeout_graceful_shutdown=5)
        async with InternalClient() as client:
            async with answering(config, listener):
                assert (await client.request("GET", "127.0.0.1", port, "/")).status == 200
                asked_at = time.monotonic()
            took_s.append(time.monotonic() - asked_at)
    assert min(took_s) < TICK_OF_UVICORN_S


async def test_running_call_is_answered_before_shutdown():
    calls = Calls(0.2)
    listener, port = listening()
    config = uvicorn.Config(calls, lifespan="off", log_config=None, timeout_graceful_shutdown=5)
    async with InternalClient() as client:
        async with answering(config, listener):
            asking = asyncio.create_task(client.request("GET", "127.0.0.1", port, "/"))
            await calls.begun.wait()
        assert (await asking).status == 200


async def test_call_beyond_the_grace_period_is_cancelled():
    calls = Calls(60)
    listener, port = listening()
    config = uvicorn.Config(calls, lifespan="off", log_config=None, timeout_graceful_shutdown=0)
    async with InternalClient() as client:
        async with answering(config, listener):
            asking = asyncio.create_task(client.request("GET", "127.0.0.1", port, "/"))
            await calls.begun.wait()
        # The server has cancelled the task, which ends in a later iteration of the loop.
        for _ in range(500):
            if not calls.were_cancelled:
                await asyncio.sleep(0.01)
        assert calls.were_cancelled
        asking.cancel()
        with pytest.raises((asyncio.CancelledError, ServerCallError)):
            await asking

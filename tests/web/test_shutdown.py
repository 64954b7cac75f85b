"""A server that is told to end does so at once, and not before its calls have been answered."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
import uvicorn

from nemo_gym.errors import ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.testing import answering

TICK_OF_UVICORN_S = 0.1
"""What uvicorn's own server takes at least, on any machine."""


class Calls:
    """An app whose calls last, and what became of them."""

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


async def test_a_server_without_calls_ends_at_once_though_its_callers_keep_their_connections():
    took_s = []
    for _ in range(5):
        listener, port = listening()
        config = uvicorn.Config(Calls(0), lifespan="off", log_config=None, timeout_graceful_shutdown=5)
        async with InternalClient() as client:
            async with answering(config, listener):
                assert (await client.request("GET", "127.0.0.1", port, "/")).status == 200
                told_at = time.monotonic()
            took_s.append(time.monotonic() - told_at)
    assert min(took_s) < TICK_OF_UVICORN_S


async def test_a_call_that_is_under_way_is_answered_first():
    calls = Calls(0.2)
    listener, port = listening()
    config = uvicorn.Config(calls, lifespan="off", log_config=None, timeout_graceful_shutdown=5)
    async with InternalClient() as client:
        async with answering(config, listener):
            asking = asyncio.create_task(client.request("GET", "127.0.0.1", port, "/"))
            await calls.begun.wait()
        assert (await asking).status == 200


async def test_a_call_that_lasts_too_long_is_given_up():
    calls = Calls(60)
    listener, port = listening()
    config = uvicorn.Config(calls, lifespan="off", log_config=None, timeout_graceful_shutdown=0)
    async with InternalClient() as client:
        async with answering(config, listener):
            asking = asyncio.create_task(client.request("GET", "127.0.0.1", port, "/"))
            await calls.begun.wait()
        # The server has let go of it; the task ends as soon as the loop comes to it.
        for _ in range(500):
            if not calls.were_cancelled:
                await asyncio.sleep(0.01)
        assert calls.were_cancelled
        asking.cancel()
        with pytest.raises((asyncio.CancelledError, ServerCallError)):
            await asking

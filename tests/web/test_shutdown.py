"""A server stops immediately, but not before its running calls have been answered."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import PrivateAttr

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer
from nemo_gym.errors import ServerCallError, ServerLost
from nemo_gym.http.internal import InternalClient
from nemo_gym.testing import make_server, on_a_port, reply
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


class Endless(SimpleResourcesServer):
    """An environment whose grading outlasts every grace period."""

    async def verify(self, body: BaseVerifyRequest) -> float:
        self._begun.set()
        await asyncio.sleep(3600)
        return 1.0

    _begun: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)


async def test_caller_of_a_cancelled_call_reads_that_the_server_is_lost(caplog):
    server = make_server(Endless, name="endless")
    answer = {"responses_create_params": {"input": "hi"}, "response": reply("hello").model_dump()}
    async with httpx.AsyncClient(timeout=60) as client:
        async with on_a_port(server) as url:
            asking = asyncio.create_task(client.post(f"{url}/verify", json=answer))
            await asyncio.wait_for(server._begun.wait(), 60)
        answered = await asking
    assert answered.status_code == ServerLost.status
    assert answered.json()["failure_class"] == ServerLost.failure_class
    assert answered.json()["detail"] == "endless stopped while it worked on /verify"
    assert "Traceback" not in caplog.text

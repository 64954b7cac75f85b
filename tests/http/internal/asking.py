"""Requests of the internal client, on both kinds of event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import Reply

PATIENCE_S = 100.0
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test once on asyncio's loop and once on uvloop's."""

    def run(loop_kind: str, **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop_kind]) as runner:
            runner.run(test(**arguments))

    functools.update_wrapper(run, test)
    parameters = inspect.signature(test).parameters.values()
    extra = inspect.Parameter("loop_kind", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([extra, *parameters])
    del run.__wrapped__
    return pytest.mark.parametrize("loop_kind", LOOPS)(run)


async def ask(client: InternalClient, server: Any, path: str, method: str = "GET", **options: Any) -> Reply:
    return await client.request(method, server.host, server.port, path, uds=server.uds, **options)


def let_meet(server: Any, path: str) -> None:
    """Let the requests to a path `/meet/…` be answered, although fewer of them are in progress than it names."""
    server._loop.call_soon_threadsafe(server.meetings[path].set)

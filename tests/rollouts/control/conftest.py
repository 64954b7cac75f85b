"""Running collections that tests send commands to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.control.calling import ask, find
from tests.conftest import PATIENCE_S
from tests.rollouts.conftest import Row, Run

Condition = Callable[[JsonObject], bool]


class Live:
    """A collection in progress, spoken to through its socket."""

    def __init__(self, output: str, collecting: asyncio.Task[Run]) -> None:
        self.output = output
        self.collecting = collecting

    async def ask(self, verb: str, **arguments: object) -> JsonObject:
        # Another thread, because the collection answers in this one.
        return await asyncio.to_thread(lambda: ask(find(self.output), verb, arguments))

    async def until(self, condition: Condition) -> JsonObject:
        """Wait for a status. Fail with the last one."""
        status: JsonObject = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition(status := await self.ask("status")):  # noqa: ASYNC110 - polls the collection
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"the last status is {status}")
        return status


@pytest.fixture
async def begin(
    run_tasks: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that starts a collection and waits until it answers."""
    # The socket's path is longer than the system allows.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    begun: list[asyncio.Task[Run]] = []

    async def start(rows: list[Row], **settings: Any) -> Live:
        collecting = asyncio.create_task(run_tasks(rows, **settings))
        begun.append(collecting)
        socket = "nemo_gym-*/collections/*.sock"
        async with asyncio.timeout(PATIENCE_S):
            while not collecting.done() and not list(tmp_path.glob(socket)):  # noqa: ASYNC110, ASYNC240 - polls
                await asyncio.sleep(0.01)
        live = Live(str(tmp_path / "results" / "out.jsonl"), collecting)
        await live.until(lambda status: status["state"] != "starting")
        return live

    yield start
    for each in begun:
        each.cancel()
    await asyncio.gather(*begun, return_exceptions=True)

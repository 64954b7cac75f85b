"""Running collections that tests send commands to, and commands in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.control.calling import ask, find
from tests.conftest import PATIENCE_S, WarmCommands
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


class Terminal:
    """A user's commands in one folder."""

    def __init__(self, ng: Sequence[str], folder: Path, records: Path, agent) -> None:
        self._ng = ng
        self.folder = folder
        self._env = os.environ | {"XDG_RUNTIME_DIR": str(records)}
        self._address = ("+head_server.host=127.0.0.1", f"+head_server.port={agent.port}", "+agent_name=sound")
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (*self._ng, *words),
            check=False,
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def ctl(self, *words: str) -> str:
        done = self.run("ctl", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict:
        return json.loads(self.ctl("x.jsonl", "status", "--json"))

    def collecting(self, *settings: str) -> tuple[str, ...]:
        return ("run", "--no-serve", *self._address, "--input", "tasks.jsonl", "-o", "x.jsonl", *settings)

    def collect(self, *settings: str) -> subprocess.Popen[str]:
        process = self.start(*self.collecting(*settings))
        self.until(lambda: self.run("ctl", "x.jsonl", "status").returncode == 0)
        return process

    def start(self, *words: str, stdout: int | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            (*self._ng, *words), cwd=self.folder, env=self._env, stdout=stdout, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def until(self, condition) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at
            time.sleep(0.05)

    @property
    def record(self) -> dict:
        return orjson.loads((self.folder / "x_run.json").read_bytes())


@pytest.fixture
def record_folder():
    """A folder for the records and sockets, with a short path."""
    with TemporaryDirectory(prefix="ng-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def ng(warm_commands: WarmCommands) -> tuple[str, ...]:
    """Return the begin of a command line."""
    return (str(warm_commands.scripts / "ng"), "eval")


@pytest.fixture
def terminal(ng, tmp_path, record_folder, agent, make_task, write_tasks):
    write_tasks(make_task(n, act="held") for n in range(8))
    opened = Terminal(ng, tmp_path, record_folder, agent)
    yield opened
    for process in opened.started:
        process.kill()
        process.wait()

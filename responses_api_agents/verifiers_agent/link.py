"""The process in which another framework runs: its start and end, and the episodes that it plays at the same time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from nemo_gym import EnvironmentFailed, InvalidTask, ServerLost, starting_dir
from nemo_gym.jsonl import JsonObject, dump_json
from responses_api_agents.verifiers_agent.place import WorkerPlace

logger = logging.getLogger(__name__)

MARK = "NEMO_GYM_WORKER"
"""The environment variable by which the programs of a worker are found after it was killed."""
CHUNK, ERROR_TAIL = 65_536, 2_000
FREE_CHUNKS = 64
"""After so many chunks of stderr it is read slowly, so that a flood does not slow other rollouts down."""
SLOW_READ_S = 0.02
END_S = 10.0
"""Seconds for a worker to end after SIGTERM, and again after SIGKILL."""


class Unusable(EnvironmentFailed):
    """The worker cannot run these tasks. Another start would not help."""


class Worker:
    """A running worker. After any fault of the process, every episode fails with that fault."""

    def __init__(self, settings: WorkerPlace, process: Process, mark: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._settings, self._process, self._mark = settings, process, mark
        self._in, self._out, self._err = process.stdin, process.stdout, process.stderr
        self._name = f"the {settings.framework.name} worker of '{settings.ident}'"
        self.fault: EnvironmentFailed | ServerLost | None = None
        self._errors = b""
        self._playing: dict[str, asyncio.Future[JsonObject]] = {}
        self._tasks = [asyncio.create_task(self._read_errors())]

    @classmethod
    async def launch(cls, settings: WorkerPlace, listed: int = 0) -> Worker:
        """Start the process and send its settings. Raise `Unusable` if it cannot be started."""
        python, mark, folder = settings.interpreter(), uuid4().hex, str(starting_dir())
        program = settings.framework.worker
        # verifiers finds `uv` next to its interpreter, and tool servers find the module of their taskset.
        path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
        modules = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH"), str(program.with_name("demo"))]))
        try:
            process = await asyncio.create_subprocess_exec(
                python, str(program), stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=settings.most_bytes, cwd=folder,
                env={**os.environ, MARK: mark, "PATH": path, "PYTHONPATH": modules}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            who = f"the {settings.framework.name} worker"
            raise Unusable(f"{who}: {python} cannot be started ({error.strerror})") from error
        worker = cls(settings, process, mark)
        await worker._send(settings.first_line(listed))
        return worker

    async def begin(self) -> None:
        """Wait until the worker can play. Raise `Unusable`, or `ServerLost` if it ends or takes too long."""
        if "ready" not in await self._message(self._settings.start_timeout_s):
            raise self._lost("sent another message than `ready` first")
        self._tasks.append(asyncio.create_task(self._read()))

    async def rows(self) -> AsyncIterator[JsonObject]:
        """Yield the tasks that a worker lists."""
        while "row" in (message := await self._message(self._settings.start_timeout_s)):
            yield message["row"]
        if "ready" not in message:
            raise self._lost(f"did not end its list of tasks with `ready`. {message.get('failed', '')}".strip())

    async def play(self, asked: JsonObject) -> JsonObject:
        """Play an episode and return its record. If this task is cancelled, the worker cancels the episode."""
        key = uuid4().hex
        ended = self._playing[key] = asyncio.get_running_loop().create_future()
        try:
            if self.fault is not None:
                raise self.fault
            await self._send({"id": key, "run": asked})
            message = await ended
        except asyncio.CancelledError:
            self._in.write(dump_json({"cancel": key}) + b"\n")
            raise
        finally:
            self._playing.pop(key).cancel()
        if isinstance(episode := message.get("episode"), dict):
            return episode
        if "invalid" in message:
            raise InvalidTask(f"{self._name} cannot run the row: {message['invalid']}")
        raise EnvironmentFailed(f"{self._name}: {message.get('failed') or 'an answer without a result'}")

    async def end(self) -> None:
        """End the process and all programs that it has started. Each wait is bounded."""
        self._fail(self._lost("was stopped"))
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)
                await self._exit()
        # Programs may be in sessions of their own, so they outlive a worker that could not stop them.
        await asyncio.to_thread(kill_marked, self._mark)
        for task in self._tasks:
            task.cancel()
        self._process._transport.close()  # type: ignore[attr-defined]

    async def _read(self) -> None:
        """Hand each answer to its episode, until the process ends, hangs, or sends something else."""
        try:
            while True:
                message = await self._message(self._settings.silence_timeout_s)
                # An answer without an episode belongs to one that was cancelled.
                ended = self._playing.get(str(message.get("id")))
                if ended is not None and not ended.done():
                    ended.set_result(message)
        except (EnvironmentFailed, ServerLost) as fault:
            self._fail(fault)

    async def _message(self, timeout_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._out.readline()
            message = orjson.loads(line) if line else None
        except TimeoutError:
            raise self._lost(f"sent nothing for {timeout_s:g} s") from None
        except orjson.JSONDecodeError:
            raise self._lost(f"sent a line that is not JSON: {line[:100]!r}") from None
        except ValueError:
            raise self._lost(f"sent a line of more than {self._settings.most_bytes:,} bytes") from None
        if not line:
            await self._exit()
            code = self._process.returncode
            raise self._lost("closed its output" if code is None else f"ended with exit code {code}")
        if not isinstance(message, dict):
            raise self._lost(f"sent a line that is not an object: {line[:100]!r}")
        if "unusable" in message:
            raise Unusable(f"{self._name}: {message['unusable']}")
        return message

    async def _send(self, message: JsonObject) -> None:
        # A closed pipe is reported by the reader, which has the reason.
        with suppress(OSError):
            self._in.write(dump_json(message) + b"\n")
            await self._in.drain()

    async def _read_errors(self) -> None:
        chunks = 0
        while chunk := await self._err.read(CHUNK):
            chunks += 1
            self._errors = (self._errors + chunk)[-ERROR_TAIL:]
            await asyncio.sleep(SLOW_READ_S if chunks > FREE_CHUNKS else 0)

    async def _exit(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), END_S)

    def _fail(self, fault: EnvironmentFailed | ServerLost) -> None:
        self.fault = self.fault or fault
        for ended in self._playing.values():
            if not ended.done():
                ended.set_exception(self.fault)

    def _lost(self, problem: str) -> ServerLost:
        said = self._errors.decode(errors="replace").strip()
        text = f"{self._name} {problem}{f'. Its last output: {said}' if said else ''}"
        # The failure is the environment's, and its class says that another attempt may succeed.
        return ServerLost(text, tier="environment")


class Workers:
    """One worker at a time. If it is lost, the next episode starts another one."""

    def __init__(self, settings: WorkerPlace) -> None:
        self._settings = settings
        self._worker: Worker | None = None
        self._starting = asyncio.Lock()
        self._unusable: Unusable | None = None

    async def play(self, asked: JsonObject) -> JsonObject:
        """Play an episode. Raise `EnvironmentFailed` if no worker can, and `ServerLost` if its worker is lost."""
        async with self._starting:
            worker = await self._running()
        return await worker.play(asked)

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.end()

    async def _running(self) -> Worker:
        if self._unusable is not None:
            raise self._unusable
        if self._worker is not None:
            if self._worker.fault is None:
                return self._worker
            logger.warning("a new worker is started: %s", self._worker.fault)
            await self._worker.end()
            self._worker = None
        worker = await Worker.launch(self._settings)
        try:
            await worker.begin()
        except BaseException as error:
            self._unusable = error if isinstance(error, Unusable) else None
            await worker.end()
            raise
        self._worker = worker
        return worker


def kill_marked(mark: str) -> None:
    """Kill the processes with this mark in their environment. Only Linux shows the environment of a process."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)

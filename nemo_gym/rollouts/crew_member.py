"""A process that makes attempts for the one that writes the run, and ends with it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys

import orjson

from nemo_gym.errors import AgentFailed
from nemo_gym.http.client import ServerClient
from nemo_gym.http.deadline import deadline_in
from nemo_gym.memory import settle_memory, tend_memory
from nemo_gym.rollouts.frames import EndedFrame, Frames, TaskFrame
from nemo_gym.rollouts.runner import Runner, failed

logger = logging.getLogger(__name__)

PARENT_POLL_S = 0.5


class Attempts:
    """Makes each attempt that comes over the socket, and tells what came of it."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()
        """Set once nobody wants to know any more."""
        self.frames = Frames(self._take, self.is_over.set)
        self._client: ServerClient | None = None
        self._runner: Runner | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def give_up(self) -> None:
        """Break off what is under way."""
        for attempt in self._under_way:
            attempt.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _take(self, frame: bytes) -> None:
        if self._runner is None:
            self._begin(frame)
            return
        attempt = asyncio.create_task(self._make(self._runner, TaskFrame.decoded(frame)))
        self._under_way.add(attempt)
        attempt.add_done_callback(self._under_way.discard)

    def _begin(self, frame: bytes) -> None:
        told = json.loads(frame)
        self._client = ServerClient.of_told(told)
        self._runner = Runner(self._client, rollout_timeout_s=told["rollout_timeout_s"])
        settle_memory()
        self.frames.say(b"ready")

    async def _make(self, runner: Runner, task: TaskFrame) -> None:
        row = orjson.loads(task.row)
        with deadline_in(task.left_s):
            record = await runner.run(row)
        try:
            frame = EndedFrame(task.number, record).encoded()
        except Exception as error:
            logger.exception("what came of a rollout cannot be written")
            frame = EndedFrame(task.number, failed(row, AgentFailed(repr(error)))).encoded()
        self.frames.say(frame)


async def serve(end: socket.socket, parent: int) -> None:
    """Make attempts until the other end hangs up, or the process behind it has ended."""
    attempts = Attempts()
    await attempts.frames.open(end)
    tending = asyncio.create_task(tend_memory())
    watching = asyncio.create_task(_watch(parent, attempts.is_over))
    await attempts.is_over.wait()
    tending.cancel()
    watching.cancel()
    await attempts.give_up()


async def _watch(parent: int, is_over: asyncio.Event) -> None:
    # What else the parent started by forking may hold its end of the socket open.
    while not is_over.is_set():
        if os.getppid() != parent:
            is_over.set()
        await asyncio.sleep(PARENT_POLL_S)


def main() -> None:
    """The parent's pid and the number of the socket are on the command line, nothing else is."""
    import uvloop

    parent, descriptor = (int(number) for number in sys.argv[1:])
    os.set_inheritable(descriptor, False)
    uvloop.run(serve(socket.socket(fileno=descriptor), parent))


if __name__ == "__main__":
    main()

"""Processes that make the attempts of a run for the one that plans and writes it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple

from nemo_gym.config.environment import shown_environment
from nemo_gym.errors import ConfigError, ServerLost
from nemo_gym.http.client import ServerClient
from nemo_gym.rollouts.attempts import AttemptMaker
from nemo_gym.rollouts.frames import EndedFrame, Frames, TaskFrame
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.outcome import Record
from nemo_gym.rollouts.runner import Runner, failed

logger = logging.getLogger(__name__)

MEMBER_MODULE = "nemo_gym.rollouts.crew_member"
WORTH_A_PROCESS = 1024
"""With `auto`, so many rollouts at once are one process's share."""
START_S = 60.0
"""A process that is not ready so long after it was started is killed."""
ENDING_S = 5.0
"""A process that has not ended so long after it was asked to is killed."""
LOOK_EVERY_S = 0.5
OVERDUE_S = 60.0
"""A process is killed as well if it says nothing of an attempt for so long after the rollout's time was over."""


@asynccontextmanager
async def attempt_maker(
    client: ServerClient, settings: CollectionSettings, *, at_once: int
) -> AsyncIterator[AttemptMaker]:
    """What makes the attempts of a run: this process, or as many others as its settings ask for.

    `at_once` is how many attempts may be under way at the same time.
    """
    alone = Runner(client, rollout_timeout_s=settings.rollout_timeout_s)
    processes = processes_for(settings.num_collector_processes, at_once)
    if processes == 1:
        yield alone
        return
    crew = Crew(alone)
    try:
        await crew.gather(processes, client, settings.rollout_timeout_s)
        yield crew
    finally:
        await crew.dismiss()


def processes_for(wanted: int | str, at_once: int) -> int:
    """How many processes are to make so many attempts at once. Raises `ConfigError` where there can be but one."""
    if sys.platform == "win32":
        if wanted not in (1, "auto"):
            raise ConfigError(f"num_collector_processes={wanted}: this system can have 1 only.")
        return 1
    if wanted == "auto":
        return max(1, min(len(os.sched_getaffinity(0)), -(-at_once // WORTH_A_PROCESS)))
    return min(int(wanted), at_once)


class Crew:
    """Gives each attempt to the process that has the fewest, so none ever has more than its share.

    An attempt whose process ends is lost, as one is whose server ends. Once all have ended, `alone` goes on.
    """

    def __init__(self, alone: AttemptMaker, *, overdue_s: float = OVERDUE_S) -> None:
        self._alone = alone
        self._overdue_s = overdue_s
        self._members: list[Member] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watching: asyncio.Task[None] | None = None

    async def gather(self, number: int, client: ServerClient, rollout_timeout_s: float) -> None:
        """Start so many processes, and wait until they are ready."""
        told = json.dumps(client.told() | {"rollout_timeout_s": rollout_timeout_s}).encode()
        for _ in range(number):
            ours, process = _start()
            self._processes.append(process)
            member = Member(process, self._leaves)
            self._members.append(member)
            await member.greet(ours, told)
        try:
            async with asyncio.timeout(START_S):
                await asyncio.gather(*(member.is_ready.wait() for member in self._members))
        except TimeoutError:
            # The others do what it would have done, and its end is told of.
            for member in [each for each in self._members if not each.is_ready.is_set()]:
                member.process.kill()
        self._watching = asyncio.create_task(self._watch())

    async def run(self, row: dict[str, Any]) -> Record:
        """See `AttemptMaker.run`."""
        if not self._members:
            return await self._alone.run(row)
        return await min(self._members, key=_load).run(row)

    async def dismiss(self) -> None:
        """Let all processes end, whatever they have under way."""
        if self._watching is not None:
            self._watching.cancel()
        members, self._members = self._members, []
        for member in members:
            member.dismiss()
        await asyncio.to_thread(_await_end, self._processes)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for member in self._members:
                if member.is_silent_since(time.monotonic() - self._overdue_s):
                    member.process.kill()

    def _leaves(self, member: Member) -> None:
        if member not in self._members:
            return
        self._members.remove(member)
        others = len(self._members)
        logger.warning(
            "process %d of the collection has died; what it had under way (%d rollouts) is begun anew, by %s",
            member.process.pid,
            member.load,
            f"{others} others" if others > 1 else "the other one" if others else "this one",
        )


class _Attempt(NamedTuple):
    ends_at: float
    """By the monotonic clock, when the rollout's time is over."""
    ending: asyncio.Future[Record | None]
    """None where the process ended first."""


class Member:
    """One process of a crew."""

    def __init__(self, process: subprocess.Popen[bytes], on_end: Callable[[Member], None]) -> None:
        self.process = process
        self.is_ready = asyncio.Event()
        """Set as well where it ends without ever being ready."""
        self._on_end = on_end
        self._frames = Frames(self._take, self._ended)
        self._numbers = count()
        self._under_way: dict[int, _Attempt] = {}

    @property
    def load(self) -> int:
        """How many attempts it has under way."""
        return len(self._under_way)

    def is_silent_since(self, then: float) -> bool:
        """Whether the time of the oldest attempt was over by then (of the monotonic clock)."""
        oldest = next(iter(self._under_way.values()), None)
        return oldest is not None and oldest.ends_at < then

    async def greet(self, end: socket.socket, told: bytes) -> None:
        """Tell it, over this end of its socket, what it has to know."""
        await self._frames.open(end)
        self._frames.say(told)

    async def run(self, row: dict[str, Any]) -> Record:
        """Have it make one attempt."""
        task = TaskFrame.of(next(self._numbers), row)
        ends_at = math.inf if task.left_s is None else time.monotonic() + task.left_s
        ending: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._under_way[task.number] = _Attempt(ends_at, ending)
        self._frames.say(task.encoded())
        try:
            record = await ending
        finally:
            del self._under_way[task.number]
        if record is None:
            message = f"process {self.process.pid} of the collection died before the rollout had ended"
            return failed(row, ServerLost(message, tier="collector"))
        return record

    def dismiss(self) -> None:
        """Let it end."""
        self._frames.hang_up()

    def _take(self, frame: bytes) -> None:
        if not self.is_ready.is_set():
            self.is_ready.set()
            return
        ended = EndedFrame.decoded(frame)
        attempt = self._under_way.get(ended.number)
        if attempt is not None and not attempt.ending.done():
            attempt.ending.set_result(ended.record)

    def _ended(self) -> None:
        self.is_ready.set()
        self._on_end(self)
        for attempt in self._under_way.values():
            if not attempt.ending.done():
                attempt.ending.set_result(None)


def _load(member: Member) -> int:
    return member.load


class _Started(NamedTuple):
    ours: socket.socket
    process: subprocess.Popen[bytes]


def _start() -> _Started:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", MEMBER_MODULE, str(os.getpid()), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=shown_environment(),
            # Of its own, so that Ctrl-C reaches this process alone, which then ends things in order.
            start_new_session=True,
        )
    return _Started(ours, process)


def _await_end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    give_up_at = time.monotonic() + ENDING_S
    for process in processes:
        try:
            process.wait(max(0.0, give_up_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

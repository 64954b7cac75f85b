"""Watch the code of an environment during a check: its time, blocked event loops and forgotten awaits."""

from __future__ import annotations

import asyncio
import math
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import nemo_gym
from nemo_gym.errors import NemoGymError
from nemo_gym.web.blocking import Block, LoopWatch, own_line

TIMEOUT_S = 300.0
TICK_S = 0.5
INTERRUPT_S = 1.0
"""Seconds after a time limit until blocking code is interrupted. A task that awaits something ends before."""
STUCK_S = 15.0
"""Seconds after a time limit until a check counts as stuck, because its code ignores interruptions."""
SIGNAL, TIMER = signal.SIGPROF, signal.ITIMER_PROF
"""The signal that interrupts blocking code, and the timer that sends it while no thread can run, as in a long regular
expression. The usual alarm belongs to the environment's code, because graders use it themselves."""
NEVER_AWAITED = re.compile(
    r"coroutine '(?P<name>[^']*)' was never awaited(?:.*File \"(?P<file>.*)\", line (?P<line>\d+))?", re.DOTALL
)
NOT_AUTHORS = (Path(nemo_gym.__file__).parent, Path(asyncio.__file__).parent.parent)
"""The folders of code that is not an environment's own."""


class Step(NamedTuple):
    """The progress of a check: the promise that is being tested."""

    promise: str
    number: int
    promises: int
    seconds: float
    line: str
    """The line of the environment's code that is running; empty if none is."""

    def __str__(self) -> str:
        running = f"; {self.line} is running" if self.line else ""
        return f"checking {self.number} of {self.promises}: {self.promise}, {self.seconds:.0f} s{running}"


OnStep = Callable[[Step], object]


class OutOfTime(BaseException):
    """Raised in code that blocks the event loop after the time limit.

    It is not an `Exception`, so that handlers of errors pass it on.
    """


class Late(NemoGymError):
    """A check did not end within its time limit."""


class Watch:
    """What was seen of an environment's code during the checks so far."""

    def __init__(
        self, folders: Sequence[Path], timeout_s: float, on_step: OnStep | None, on_stuck: OnStep | None
    ) -> None:
        """Watch code in these folders, of which the last has the server. Each promise may take `timeout_s`.

        A thread calls `on_step` twice a second, and `on_stuck` if a check ignores its interruption.
        """
        self.blocks: list[Block] = []
        self.forgotten: dict[str, None] = {}
        """The places of calls without `await`, in order."""
        self._folders = folders
        self._timeout_s = timeout_s
        self._on_step = on_step
        self._on_stuck = on_stuck
        self._loop = asyncio.get_running_loop()
        self._interrupt_at = math.inf
        self._checking: asyncio.Task[object] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running event loop and all calls until the block ends."""
        with LoopWatch(self.blocks.append, self._folders[-1]), self._noticing_forgotten_awaits():
            yield

    async def limited(self, testing: Awaitable[str], promise: str, number: int, promises: int) -> str:
        """Return the result of a check. Raise `Late`, with the running line, if it takes too long."""
        began_at, done, line = time.monotonic(), threading.Event(), ""
        self._checking = asyncio.current_task()

        def tend() -> None:
            nonlocal line
            while not done.wait(TICK_S):
                seconds, line = time.monotonic() - began_at, self._running()
                step = Step(promise, number, promises, seconds, line)
                if self._on_step is not None:
                    self._on_step(step)
                if seconds > self._timeout_s + INTERRUPT_S:
                    signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
                if seconds > self._timeout_s + STUCK_S and self._on_stuck is not None:
                    self._on_stuck(step)

        tending = threading.Thread(target=tend, daemon=True)
        with self._interruptible(began_at + self._timeout_s + INTERRUPT_S):
            tending.start()
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await testing
            except (TimeoutError, OutOfTime, BaseExceptionGroup) as error:
                self._interrupt_at = math.inf
                if time.monotonic() - began_at < self._timeout_s:
                    raise
                with suppress(asyncio.CancelledError):
                    # Take a cancellation by the time limit that came together with the interruption.
                    await asyncio.sleep(0)
                where = f", while {line} was running" if line else ""
                advice = "Let the code end, or raise the limit with --timeout"
                raise Late(f"no result after {self._timeout_s:g} s{where}. {advice}") from error
            finally:
                done.set()
                tending.join()

    def _is_own(self, file: Path) -> bool:
        """Return whether a file belongs to the environment, or to a program around it that is not installed."""
        if any(file.is_relative_to(folder) for folder in self._folders):
            return True
        return "site-packages" not in file.parts and not any(map(file.is_relative_to, NOT_AUTHORS))

    def _running(self) -> str:
        """Return the line of the environment's code that a thread is running; empty if none is."""
        for frame in list(sys._current_frames().values()):
            for folder in self._folders:
                if (line := own_line(folder, frame)) is not None:
                    return f"{Path(line.filename).name}:{line.lineno} in {line.name}"
        return ""

    @contextmanager
    def _interruptible(self, at: float) -> Iterator[None]:
        """From this time on, let the signal raise `OutOfTime` in code that blocks the main thread's event loop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._interrupt_at = at
        earlier = signal.signal(SIGNAL, self._interrupt)
        signal.setitimer(TIMER, INTERRUPT_S, INTERRUPT_S)
        try:
            yield
        finally:
            signal.setitimer(TIMER, 0)
            signal.signal(SIGNAL, earlier)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        task = asyncio.current_task(self._loop)
        if task is None or time.monotonic() < self._interrupt_at:
            return
        # Give the code time to clean up before it is interrupted again.
        self._interrupt_at = time.monotonic() + INTERRUPT_S
        # Cancel the other tasks, because each of them would run into the same code.
        for other in asyncio.all_tasks(self._loop) - {task, self._checking}:
            other.cancel()
        raise OutOfTime

    @contextmanager
    def _noticing_forgotten_awaits(self) -> Iterator[None]:
        depth = sys.get_coroutine_origin_tracking_depth()
        with warnings.catch_warnings():
            warnings.filterwarnings("always", message="coroutine .* was never awaited", category=RuntimeWarning)
            show = warnings.showwarning

            def notice(
                message: Warning | str, category: type[Warning], filename: str, lineno: int, *others: object
            ) -> None:
                found = NEVER_AWAITED.match(str(message))
                if found is None:
                    show(message, category, filename, lineno)
                    return
                file = Path(found["file"] or filename)
                if self._is_own(file):
                    line = found["line"] or lineno
                    self.forgotten[f"{file.name}:{line} calls {found['name']}"] = None

            warnings.showwarning = notice  # type: ignore[assignment]
            # Record where a coroutine was created, because the warning itself names the line at which it was deleted.
            sys.set_coroutine_origin_tracking_depth(1)
            try:
                yield
            finally:
                sys.set_coroutine_origin_tracking_depth(depth)

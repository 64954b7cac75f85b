"""Find the handlers that block a server's event loop, by sampling the loop from a thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

from nemo_gym.web.call import Call

TICK_S = 0.1
LATE_S = 1.5 * TICK_S
LEAST_S = 0.25
"""Seconds that a task must hold the event loop without a break to be reported."""
CPU_SHARE = 0.1
"""A task that uses more than this share of a processor computes. Only its computing time counts, because it may also
have waited for a processor."""
CURE = "Make the handler a plain def, which runs in a thread, or await what it waits for"


class Block(NamedTuple):
    """A stretch of time in which one task held the event loop."""

    path: str
    """The path of the call that the task handled; empty if it handled none."""
    place: str
    """The line of the server's own code, such as `app.py:12 in verify`; empty if unknown."""
    seconds: float

    def described(self, server: str) -> str:
        """Return which handler held the loop and for how long, such as `fridge /verify blocked … for 2.0 s (…)`."""
        where = f" ({self.place})" if self.place else ""
        handler = f"{server} {self.path}".rstrip()
        return f"{handler} blocked the event loop for {self.seconds:.1f} s{where}"


class LoopWatch:
    """A context manager that reports each `Block` of the running event loop to `on_block`.

    A timer of the loop beats ten times a second. If a beat is late, a thread looks at the running task. So requests
    cost nothing more.
    """

    def __init__(self, on_block: Callable[[Block], None], folder: Path | None = None) -> None:
        """`folder` has the server's own code."""
        self._on_block = on_block
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._clock = _cpu_clock(self._watched)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="event loop watch", daemon=True)
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._beat_at = self._looked_at = time.monotonic()
        self._cpu_at = time.clock_gettime(self._clock)
        self._task: asyncio.Task[object] | None = None
        self._path = self._place = ""
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._beat()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def running(self) -> str:
        """The line of the server's own code that blocks the loop at the moment; empty if none does."""
        return self._place

    def _beat(self) -> None:
        with self._lock:
            # Report here, before the loop handles another call, so that this call sees the block in the metrics.
            self._end(self._held_s())
            self._beat_at = self._looked_at
        self._timer = self._loop.call_later(TICK_S, self._beat)

    def _watch(self) -> None:
        while not self._stop.wait(TICK_S):
            with self._lock:
                held_s = self._held_s()
                if self._looked_at - self._beat_at > LATE_S:
                    self._sample(held_s)

    def _held_s(self) -> float:
        """Return for how long a task could hold the loop since the previous look at it."""
        now, cpu = time.monotonic(), time.clock_gettime(self._clock)
        passed_s, computed_s = now - self._looked_at, cpu - self._cpu_at
        self._looked_at, self._cpu_at = now, cpu
        return computed_s if computed_s > CPU_SHARE * passed_s else passed_s

    def _sample(self, held_s: float) -> None:
        task = asyncio.current_task(self._loop)
        if task is not self._task:
            self._end(0.0)
            self._task = task
        if task is not None:
            self._seconds += held_s
            # Keep the latest place, because a task does other work before and after the line that blocks.
            path, place = _described(self._watched, self._folder)
            self._path, self._place = path or self._path, place or self._place

    def _end(self, held_s: float) -> None:
        """Report the stretch of the sampled task, if there is one and it was long."""
        if self._task is not None and self._seconds + held_s >= LEAST_S:
            self._on_block(Block(self._path, self._place, self._seconds + held_s))
        self._task, self._seconds, self._path, self._place = None, 0.0, "", ""


def _cpu_clock(thread: int) -> int:
    """Return the clock of a thread's computing time, or of the process's where threads have none."""
    has_own = hasattr(time, "pthread_getcpuclockid")
    return time.pthread_getcpuclockid(thread) if has_own else time.CLOCK_PROCESS_CPUTIME_ID


def own_line(folder: Path, frame: FrameType | None) -> traceback.FrameSummary | None:
    """Return the line of a folder's code that runs at the top of this stack, or None if there is none."""
    folder = folder.resolve()
    for inner in _outwards(frame):
        path = Path(inner.f_code.co_filename).resolve()
        # Skip installed packages, because a folder may contain its own virtual environment.
        if folder in path.parents and "site-packages" not in path.parts:
            return traceback.FrameSummary(str(path), inner.f_lineno, inner.f_code.co_name)
    return None


def _described(thread: int, folder: Path | None) -> tuple[str, str]:
    """Return the path of the call that a thread handles, and the line of the folder's code that it runs."""
    innermost = sys._current_frames().get(thread)
    line = None if folder is None else own_line(folder, innermost)
    place = "" if line is None else f"{Path(line.filename).name}:{line.lineno} in {line.name}"
    # Search the stack for the call. Recording the running call for this would slow down every request.
    calls = (each.f_locals.get("call") for each in _outwards(innermost) if each.f_code.co_name == "_work_on")
    call = next((each for each in calls if isinstance(each, Call)), None)
    return "" if call is None else str(getattr(call.scope.get("route"), "path", call.path)), place


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back

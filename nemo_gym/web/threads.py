"""Threads for handlers that are plain functions, so that they do not block other calls."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from nemo_gym.errors import Overloaded

ResultT = TypeVar("ResultT")

THREADS = 32
MOST_STUCK = 480
"""Maximum number of abandoned calls that still run. A thread cannot be stopped from outside."""


class BlockingPool:
    """A thread pool that runs up to `threads` functions at once. Further calls wait.

    A call is abandoned if its deadline passes or its caller hangs up. Its thread keeps running, but its slot is free
    for another call. If too many abandoned calls are still running, further calls raise `Overloaded`.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self.threads = threads
        self.stuck = 0
        self._slots = asyncio.Semaphore(threads)
        self._executor = ThreadPoolExecutor(threads + MOST_STUCK, thread_name_prefix="blocking handler")

    async def run(self, function: Callable[..., ResultT], **named: object) -> ResultT:
        """Run a function in a thread and return its result. Raise the errors of the function."""
        async with self._slots:
            if self.stuck >= MOST_STUCK:
                raise Overloaded(
                    f"{self.stuck} calls of blocking handlers are still running, although their callers no longer "
                    "wait. Add timeouts to the handlers"
                )
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            running = self._executor.submit(context.run, partial(function, **named))
            try:
                return await asyncio.wrap_future(running, loop=loop)
            except asyncio.CancelledError:
                if running.running():
                    self.stuck += 1
                    running.add_done_callback(partial(self._note_return, loop))
                raise

    def _note_return(self, loop: asyncio.AbstractEventLoop, _: Future[object]) -> None:
        # Ignore the error if the event loop ended before the thread, because the count then no longer matters.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._count_down)

    def _count_down(self) -> None:
        self.stuck -= 1


_pools: dict[asyncio.AbstractEventLoop, BlockingPool] = {}


def blocking_pool(threads: int | None = None) -> BlockingPool:
    """Return the pool of the running event loop. `threads` is ignored if the pool exists already."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        for ended in [known for known in _pools if known.is_closed()]:
            _pools.pop(ended)._executor.shutdown(wait=False)
        _pools[loop] = BlockingPool(threads or THREADS)
    return _pools[loop]


def has_stuck_threads() -> bool:
    """Return whether abandoned calls are still running in any pool of this process."""
    return any(pool.stuck for pool in _pools.values())

"""Handlers that are plain functions: each runs in a thread, so that it never holds up the others."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from nemo_gym.errors import Overloaded

THREADS = 32
MOST_STUCK = 480
"""A thread cannot be ended from outside: so many that were given up and still run are borne."""


class BlockingPool:
    """Runs so many functions at once; further ones wait.

    A call that is given up, because its time is over or its caller has gone, leaves its thread to run to its end and
    makes room for another. Where too many have been left so, further calls raise `Overloaded`.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self.threads = threads
        self.stuck = 0
        self._places = asyncio.Semaphore(threads)
        self._executor = ThreadPoolExecutor(threads + MOST_STUCK, thread_name_prefix="blocking handler")

    async def run(self, function: Callable[..., Any], **named: Any) -> Any:
        """What the function returns; what it raises is raised."""
        async with self._places:
            if self.stuck >= MOST_STUCK:
                raise Overloaded(f"{self.stuck} calls of functions were given up and still run; the server is stuck")
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

    def _note_return(self, loop: asyncio.AbstractEventLoop, _: Future[Any]) -> None:
        # The event loop may have ended while the thread went on; then nobody counts any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._count_down)

    def _count_down(self) -> None:
        self.stuck -= 1


_pools: dict[asyncio.AbstractEventLoop, BlockingPool] = {}


def blocking_pool(threads: int | None = None) -> BlockingPool:
    """The pool of the running event loop; `threads` counts where it does not exist yet."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        for ended in [known for known in _pools if known.is_closed()]:
            _pools.pop(ended)._executor.shutdown(wait=False)
        _pools[loop] = BlockingPool(threads or THREADS)
    return _pools[loop]

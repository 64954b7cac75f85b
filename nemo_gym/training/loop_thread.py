"""An event loop in a thread, for trainers that do not use asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class LoopThread:
    """An event loop that runs in a thread from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nemo_gym training", daemon=True)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def result_of(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine in the thread and wait for its result. Ctrl-C cancels it and waits for its end."""
        ended = threading.Event()

        async def begin() -> asyncio.Task[ResultT]:
            task = asyncio.create_task(work)
            task.add_done_callback(lambda _: ended.set())
            return task

        task = asyncio.run_coroutine_threadsafe(begin(), self._loop).result()
        try:
            ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(task.cancel)
            ended.wait()
            raise
        return task.result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

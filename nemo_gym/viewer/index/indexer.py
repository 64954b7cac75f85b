"""Index runs in a background thread, in turns of a fraction of a second."""

from __future__ import annotations

import logging
import time
from collections import deque
from threading import Condition, Thread

from nemo_gym.errors import UserError
from nemo_gym.viewer.index.run_index import RunIndex

logger = logging.getLogger(__name__)

TURN_S = 0.2


class Indexer:
    """A thread that indexes the requested runs. The latest request comes first."""

    def __init__(self) -> None:
        self._waiting: deque[RunIndex] = deque()
        self._active: RunIndex | None = None
        self._changed = Condition()
        self._is_stopped = False
        self._thread: Thread | None = None

    def want(self, run: RunIndex) -> None:
        """Queue a run for indexing, and start the thread if it is not running."""
        with self._changed:
            if self._is_stopped:
                return
            if run not in self._waiting:
                self._waiting.appendleft(run)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="viewer-index", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, run: RunIndex, timeout_s: float) -> bool:
        """Wait until a run is indexed. Return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_stopped or (run not in self._waiting and run is not self._active), timeout_s
            )

    def stop(self) -> None:
        """End the thread after its current transaction."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while run := self._next():
            is_left = False
            try:
                is_left = run.index_some(TURN_S)
                run.fault = None
            except UserError as error:
                run.fault = str(error)
            except Exception as error:
                # Catch all errors, because the other runs must still be indexed.
                logger.exception("a run cannot be indexed")
                run.fault = f"the run cannot be indexed ({type(error).__name__}: {error}). Please report this."
            with self._changed:
                self._active = None
                if is_left and run not in self._waiting:
                    self._waiting.append(run)
                self._changed.notify_all()
            # Release the GIL, so that waiting requests run now and not after the switch interval.
            time.sleep(0)

    def _next(self) -> RunIndex | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_stopped)
            if self._is_stopped:
                return None
            self._active = self._waiting.popleft()
            return self._active

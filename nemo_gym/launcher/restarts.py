"""Start a server that died again: after a pause that grows, so many times, and then no more."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_gym.errors import LaunchError
from nemo_gym.http.backoff import Backoff
from nemo_gym.launcher.base import ServerProcess
from nemo_gym.launcher.endings import failure_of, how_it_ended
from nemo_gym.launcher.places import Place
from nemo_gym.launcher.watch import Watcher

DEFAULT_LIMIT = 5
WINDOW_S = 600.0
"""Only ends within this time count towards the limit."""
BACKOFF = Backoff(first_s=0.2, factor=2, longest_s=5.0)
JOIN_PATIENCE_S = 1.5


class RestartPolicy(NamedTuple):
    """How often a process is started again, and how long it may take to be ready."""

    limit: int = DEFAULT_LIMIT
    """So many times within ten minutes; 0 ends the run with the first server that dies."""
    ready_timeout_s: float = 120.0


@dataclass
class _Care:
    """One place and what has become of it."""

    place: Place
    ends: deque[float] = field(default_factory=deque)
    """When its processes died lately."""
    due_at: float | None = None
    """When it is to be started again; None where a process is there."""
    ready_by: float | None = None
    """When a process that was started again has to be ready; None where it is."""


class Keeper:
    """A thread that keeps the places of a run filled, until one of them cannot be; then that is `failure`.

    It works on its own, since a run may be watched seldom, and its callers wait for servers all the time.
    """

    def __init__(
        self,
        places: Sequence[Place],
        watcher: Watcher,
        policy: RestartPolicy,
        *,
        notice: Callable[[str], None],
        on_restart: Callable[[Place], None],
    ) -> None:
        self.failure: Exception | None = None
        self._care = [_Care(place) for place in places]
        self._watcher = watcher
        self._policy = policy
        self._notice = notice
        self._on_restart = on_restart
        self._has_given_up = threading.Event()
        self._starting = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="server restarts", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Return after this long; as soon as a server is given up, raise the `LaunchError` that says why."""
        if self._has_given_up.wait(timeout_s) and self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Start nothing any more."""
        with self._starting:
            self._is_closed = True
        self._watcher.changes.put(None)
        self._thread.join(JOIN_PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._is_closed:
                changed = self._next_change()
                if changed is not None and not self._is_closed:
                    self._heed(changed)
                self._start_what_is_due()
        except Exception as error:  # noqa: BLE001
            # Whoever waits for the servers raises it: here it would end a thread, and nobody would keep them.
            self.failure = error
            self._has_given_up.set()

    def _next_change(self) -> ServerProcess | None:
        moments = [at for each in self._care for at in (each.due_at, each.ready_by) if at is not None]
        timeout_s = max(0.0, min(moments) - time.monotonic()) if moments else None
        try:
            return self._watcher.changes.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _heed(self, process: ServerProcess) -> None:
        care = next((each for each in self._care if each.place.process is process), None)
        if care is None or care.due_at is not None:
            return
        if process.has_ended:
            self._mourn(care)
        elif process.is_ready and care.ready_by is not None:
            care.ready_by = None
            self._notice(f"server '{process.name}' is up again (pid {process.pid})")

    def _mourn(self, care: _Care) -> None:
        """Say that a process died, and set the time for the next one. Raises `LaunchError` where it was the last."""
        process, limit, now = care.place.process, self._policy.limit, time.monotonic()
        if process.failure is not None:
            # What its user has to mend does not mend itself.
            raise LaunchError(process.failure)
        how = how_it_ended(process)
        while care.ends and care.ends[0] < now - WINDOW_S:
            care.ends.popleft()
        number = len(care.ends) + 1
        if number > limit:
            care.place.hang_up()
            again = f" for the {_ordinal(number)} time within {WINDOW_S / 60:g} minutes (restart_limit is {limit})"
            raise failure_of(process, how, f"{again if limit else ''}, so the others are stopped too")
        pause_s = BACKOFF.pause_s(number)
        care.ends.append(now)
        care.due_at, care.ready_by = now + pause_s, None
        lost = "; its rollouts under way are lost" if care.place.server else ""
        early = "" if process.is_ready else " before it was ready again"
        self._notice(
            f"server '{process.name}' {how}{early}{lost}. It is started again in {pause_s:.1f} s "
            f"(restart {number} of {limit})"
        )

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        for care in self._care:
            if care.due_at is not None and care.due_at <= now:
                with self._starting:
                    if self._is_closed:
                        return
                    care.place.fill(self._watcher)
                care.due_at, care.ready_by = None, time.monotonic() + self._policy.ready_timeout_s
                self._on_restart(care.place)
            elif care.ready_by is not None and care.ready_by <= now:
                care.ready_by = None
                process = care.place.process
                self._notice(f"server '{process.name}' was not ready after {self._policy.ready_timeout_s:g} s")
                process.starter.signal(process.pid, signal.SIGKILL)


def _ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"

"""Restarts of servers that died, with growing pauses and a limit."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_gym.errors import LaunchError
from nemo_gym.http.retries import Backoff
from nemo_gym.launcher.base import ServerProcess
from nemo_gym.launcher.endings import failure_of, how_it_ended
from nemo_gym.launcher.places import Place
from nemo_gym.launcher.watch import Watcher

DEFAULT_LIMIT = 5
WINDOW_S = 600.0
"""The period, in seconds, in which deaths count towards the limit on restarts."""
BACKOFF = Backoff(first_s=0.2, factor=2, longest_s=5.0)
JOIN_PATIENCE_S = 1.5


class RestartPolicy(NamedTuple):
    """Limits on the restarts of each process, and on the time until a restarted process is ready."""

    limit: int = DEFAULT_LIMIT
    """The maximum number of restarts within ten minutes; 0 ends the run when a server dies."""
    ready_timeout_s: float = 120.0


@dataclass
class _Watched:
    """One process of the run, and the state of its restarts."""

    place: Place
    deaths: deque[float] = field(default_factory=deque)
    """The times at which the process died recently."""
    due_at: float | None = None
    """The time of the next restart; None while the process runs."""
    ready_by: float | None = None
    """The time by which a restarted process must be ready; None if no restart is in progress."""
    start_timeout_s: float = 0.0
    """The time that a start may take, if the process has reported one."""


class Keeper:
    """A thread that restarts the processes of a run.

    If a process dies too often, or if a restart would not help, the thread sets `failure` and ends. Restarts do not
    depend on calls of `wait`, because programs may call `wait` rarely.
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
        self._watched = [_Watched(place) for place in places]
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
        """Wait for `timeout_s` seconds. Raise `failure` as soon as a server has ended and will not be restarted."""
        if self._has_given_up.wait(timeout_s) and self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Stop restarting processes."""
        with self._starting:
            self._is_closed = True
        self._watcher.changes.put(None)
        self._thread.join(JOIN_PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._is_closed:
                changed = self._next_change()
                if changed is not None and not self._is_closed:
                    self._handle(changed)
                self._restart_due()
        except Exception as error:  # noqa: BLE001
            # Keep the error for `wait`, which raises it in the caller's thread.
            self.failure = error
            self._has_given_up.set()

    def _next_change(self) -> ServerProcess | None:
        moments = [at for each in self._watched for at in (each.due_at, each.ready_by) if at is not None]
        timeout_s = max(0.0, min(moments) - time.monotonic()) if moments else None
        return self._watcher.next_change(timeout_s)

    def _handle(self, process: ServerProcess) -> None:
        watched = next((each for each in self._watched if each.place.process is process), None)
        if watched is None or watched.due_at is not None:
            return
        if process.has_ended:
            self._note_death(watched)
        elif process.is_ready and watched.ready_by is not None:
            watched.ready_by = None
            self._notice(f"server '{process.name}' is up again (pid {process.pid})")

    def _note_death(self, watched: _Watched) -> None:
        """Report that a process died and schedule the restart. Raise `LaunchError` if the limit is exceeded."""
        process, limit, now = watched.place.process, self._policy.limit, time.monotonic()
        if process.failure is not None:
            # Do not restart the server, because a restart does not fix a configuration error.
            raise LaunchError(process.failure)
        how = how_it_ended(process)
        while watched.deaths and watched.deaths[0] < now - WINDOW_S:
            watched.deaths.popleft()
        number = len(watched.deaths) + 1
        if number > limit:
            watched.place.close_listeners()
            again = f", and the restart_limit of {limit} within {WINDOW_S / 60:g} minutes is reached" if limit else ""
            raise failure_of(process, how, f"{again}, so the others are stopped too")
        pause_s = BACKOFF.pause_s(number)
        watched.deaths.append(now)
        watched.due_at, watched.ready_by = now + pause_s, None
        lost = "; its rollouts under way are lost" if watched.place.server else ""
        early = "" if process.is_ready else " before it was ready again"
        self._notice(
            f"server '{process.name}' {how}{early}{lost}. It is started again in {pause_s:.1f} s "
            f"(restart {number} of {limit})"
        )

    def _restart_due(self) -> None:
        now = time.monotonic()
        for watched in self._watched:
            if watched.due_at is not None and watched.due_at <= now:
                with self._starting:
                    if self._is_closed:
                        return
                    # Use the time that the previous process reported, because the new one has not reported any yet.
                    watched.start_timeout_s = max(watched.start_timeout_s, watched.place.process.start_timeout_s)
                    watched.place.fill(self._watcher)
                watched.due_at, watched.ready_by = None, time.monotonic() + self._start_timeout_s(watched)
                self._on_restart(watched.place)
            elif watched.ready_by is not None and watched.ready_by <= now:
                watched.ready_by = None
                process = watched.place.process
                self._notice(f"server '{process.name}' was not ready after {self._start_timeout_s(watched):g} s")
                process.starter.signal(process.pid, signal.SIGKILL)

    def _start_timeout_s(self, watched: _Watched) -> float:
        return max(self._policy.ready_timeout_s, watched.start_timeout_s)

"""The actors of a run on a Ray cluster, from their creation to their end, as the driver sees them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.config.process import ServerInstance
from nemo_gym.config.ray import RayNeeds
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.ray.actor import MOST_LINES, Place, Report
from nemo_gym.launcher.ray.cluster import free_resources
from nemo_gym.launcher.restarts import WINDOW_S

POLL_S = 0.5
REPORT_WAIT_S = 10.0
CALL_PAUSE_S = 0.5
REMINDER_S = 5.0
STARTED_MARGIN_S = 15.0
"""Additional seconds that the driver waits, so that the launcher on the node reports its more detailed error first."""
STOP_PATIENCE_S = 6.0
THREADS = 4
"""Number of calls that an actor handles concurrently: several, so that a waiting `report` does not delay `stop`."""


@dataclass
class Replica:
    """One process of a server, and the actor that runs it."""

    name: str
    """The server's name, followed by `#<n>` for each process after the first."""
    server: str
    needs: RayNeeds
    actor: Any
    waiting_since: float
    """The time at which the current start or restart began."""
    place: Place | None = None
    """The actor's node, or its last node if the actor is lost; None until Ray has found a node."""
    instance: ServerInstance | None = None
    """The replica's entry in the list of servers; None until the replica is ready."""
    losses: deque[float] = field(default_factory=deque)
    """The times at which the actor was lost recently."""
    is_lost: bool = False
    """Whether the actor did not answer the last call."""

    @property
    def is_ready(self) -> bool:
        return self.instance is not None and not self.is_lost

    @property
    def has_node(self) -> bool:
        return self.place is not None and not self.is_lost

    @property
    def address(self) -> str:
        return self.place.address if self.place else "a node"


class Replicas:
    """A thread that watches the actors and passes on their logs. If an actor cannot run, `failure` is the reason."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        on_line: Callable[[str, str, str], None],
        notice: Callable[[str], None],
        ready_timeout_s: float,
        restart_limit: int,
    ) -> None:
        self.failure: LaunchError | None = None
        self.replicas = replicas
        self._on_line = on_line
        self._notice = notice
        self._ready_timeout_s = ready_timeout_s
        self._restart_limit = restart_limit
        self._calls: dict[Any, Replica] = {}
        """The replica of each pending call."""
        self._paused: list[tuple[float, Replica]] = []
        """Lost actors, with the time at which to call them again."""
        self._remind_at = 0.0
        self._changed = threading.Condition()
        self._is_closed = threading.Event()
        for replica in replicas:
            self._calls[replica.actor.place.remote()] = replica
        self._thread = threading.Thread(target=self._follow, name="ray actors", daemon=True)
        self._thread.start()

    def wait_until_ready(self) -> None:
        """Wait until every replica is ready. Raise `LaunchError` if one cannot run, or after `ready_timeout_s`."""
        with self._changed:
            # Do not use a deadline here, because the thread sets `failure` after the timeout.
            while not self.failure and not all(each.is_ready for each in self.replicas):
                self._changed.wait(POLL_S)
        if self.failure:
            raise self.failure

    def close(self, *, calls_ray: bool = True) -> None:
        """Ask the actors to stop their servers, then kill the actors. Without `calls_ray`, only end the thread."""
        import ray

        self._is_closed.set()
        if not calls_ray:
            return
        self._thread.join(2 * POLL_S)
        stopping = [each.actor.stop.remote() for each in self.replicas if each.has_node]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=STOP_PATIENCE_S)
        for each in self.replicas:
            ray.kill(each.actor)

    def _follow(self) -> None:
        import ray

        try:
            while not self._is_closed.is_set() and self.failure is None:
                self._call_paused()
                if self._calls:
                    for call in ray.wait(list(self._calls), num_returns=1, timeout=POLL_S)[0]:
                        self._take(call)
                else:
                    time.sleep(POLL_S)
                self._check_times()
        except LaunchError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - `failure` is raised in the caller's thread
            self._fail(LaunchError(f"the Ray cluster does not answer: {type(error).__name__}: {error}"))

    def _fail(self, error: LaunchError) -> None:
        with self._changed:
            self.failure = error
            self._changed.notify_all()

    def _call_paused(self) -> None:
        now = time.monotonic()
        due = [each for at, each in self._paused if at <= now]
        self._paused = [(at, each) for at, each in self._paused if at > now]
        for replica in due:
            self._calls[replica.actor.place.remote()] = replica

    def _take(self, call: Any) -> None:
        """Handle the answer to one call, then make the next call to the same actor."""
        import ray
        from ray.exceptions import ActorDiedError, RayActorError

        replica = self._calls.pop(call)
        try:
            answer = ray.get(call)
        except ActorDiedError as error:
            raise LaunchError(f"server '{replica.name}' cannot run on {replica.address}: {_reason(error)}") from error
        except RayActorError:
            self._note_loss(replica)
            return
        if isinstance(answer, Place):
            self._take_place(replica, answer)
        else:
            self._take_report(replica, answer)
        if not replica.is_lost:
            self._calls[replica.actor.report.remote(REPORT_WAIT_S)] = replica

    def _take_place(self, replica: Replica, place: Place) -> None:
        before, replica.place = replica.place, place
        was_lost, replica.is_lost = replica.is_lost, False
        if before is None or before.life != place.life:
            replica.instance = None
            replica.waiting_since = time.monotonic()
            if before is not None:
                self._notice(f"server '{replica.name}' is started again on {place.address}")
        elif was_lost:
            self._notice(f"server '{replica.name}' on {place.address} answers again")

    def _take_report(self, replica: Replica, report: Report) -> None:
        if report.dropped:
            dropped = f"({report.dropped} lines are missing: at most {MOST_LINES} are kept)"
            self._on_line(replica.name, replica.address, dropped)
        for line in report.lines:
            self._on_line(replica.name, replica.address, line)
        for text in report.notices:
            self._notice(f"{replica.name} on {replica.address}: {text}")
        if report.failure is not None:
            raise LaunchError(f"{replica.name} on {replica.address}: {report.failure}")
        if replica.place is None or report.life != replica.place.life:
            # The actor was started again between two calls, so its earlier server is lost.
            self._note_loss(replica)
            return
        with self._changed:
            was_ready, replica.instance = replica.is_ready, report.instance
            if replica.is_ready and not was_ready and replica.losses:
                self._notice(f"server '{replica.name}' is up again on {replica.address}")
            self._changed.notify_all()

    def _note_loss(self, replica: Replica) -> None:
        """Record that an actor does not answer. Raise `LaunchError` if that has happened too often."""
        now = time.monotonic()
        if not replica.is_lost:
            while replica.losses and replica.losses[0] < now - WINDOW_S:
                replica.losses.popleft()
            if len(replica.losses) >= self._restart_limit:
                raise LaunchError(
                    f"server '{replica.name}' on {replica.address} does not answer, and the restart_limit of "
                    f"{self._restart_limit} within {WINDOW_S / 60:g} minutes is reached, so the run ends. Find the "
                    "cause in the server's log, or raise restart_limit."
                )
            replica.losses.append(now)
            self._notice(
                f"server '{replica.name}' on {replica.address} does not answer. Ray starts it again, on another node "
                "if its node is lost. Its rollouts under way are lost."
            )
            replica.waiting_since = now
            replica.is_lost = True
        self._paused.append((now + CALL_PAUSE_S, replica))

    def _check_times(self) -> None:
        """Report replicas that are not ready yet. Raise `LaunchError` if a replica has taken too long."""
        now = time.monotonic()
        waiting = [each for each in self.replicas if not each.is_ready]
        for each in waiting:
            waited_s = now - each.waiting_since
            if not each.has_node and waited_s > self._ready_timeout_s:
                raise LaunchError(
                    f"server '{each.name}' has waited {waited_s:.0f} s for {each.needs}; the cluster has "
                    f"{free_resources()} free. Add nodes, reduce what its block asks for under 'ray', or set "
                    "--ready-timeout-s … to wait longer."
                )
            if each.has_node and waited_s > self._ready_timeout_s + STARTED_MARGIN_S:
                raise LaunchError(
                    f"server '{each.name}' is not ready on {each.address} after {waited_s:.0f} s. --ready-timeout-s … "
                    "gives servers longer to start."
                )
        late = [each for each in waiting if now - each.waiting_since > REMINDER_S]
        if late and now >= self._remind_at:
            self._remind_at = now + REMINDER_S
            for each in late:
                what = (
                    f"to be ready on {each.address}"
                    if each.has_node
                    else f"for {each.needs} ({free_resources()} free)"
                )
                waited_s = now - each.waiting_since
                self._notice(f"{each.name} waits {what}, {waited_s:.0f} of {self._ready_timeout_s:g} s")


def _reason(error: Exception) -> str:
    """Return the last line of an actor's traceback, which is the exception. Omit the class name of a `LaunchError`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].removeprefix(f"{LaunchError.__module__}.{LaunchError.__name__}: ") if lines else str(error)

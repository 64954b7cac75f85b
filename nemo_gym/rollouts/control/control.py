"""The commands that users send to a running collection, and the status that it reports."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from nemo_gym.errors import RolloutCancelled, UserError
from nemo_gym.rollouts.concurrency import AdaptiveLimit, FixedLimit
from nemo_gym.rollouts.opening import OpenRun
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.schemas.row import Row, TaskKey, rows_in

MOST_AT_ONCE = 16_384
"""The upper limit of an adaptive (`auto`) concurrency."""
OLDEST_SHOWN = 10
RATE_OVER_S = 10.0
STOP_AFTER_S = 0.05
"""Seconds until `stop` takes effect, so that its answer is sent first."""
CANCELLED = "cancelled with 'ng eval ctl'"
DRAINED = "drain: asked for with 'ng eval ctl'"


class Refused(UserError):
    """The error for a control request that this collection cannot carry out."""


class Owed(NamedTuple):
    """A rollout to run."""

    row: Row
    failed_before: str | None
    """The failure class of its last failed attempt."""


class Ended(NamedTuple):
    """An ended rollout that has no score and may be requeued."""

    attempts: int
    cause: str | None
    """The failure class of the last failed attempt; None if all results were marked with `_ng_no_persist`."""


class Running:
    """The context manager of a running rollout. It raises `RolloutCancelled` if a user cancels the rollout."""

    __slots__ = ("_all", "_key", "_task", "attempt", "began_at", "is_cancelled")

    def __init__(self, row: Row, key: TaskKey, of_all: dict[TaskKey, Running]) -> None:
        self.attempt = row.attempt
        self.began_at = time.monotonic()
        self.is_cancelled = False
        self._all = of_all
        self._key = key
        self._task = asyncio.current_task()

    def __enter__(self) -> Self:
        self._all[self._key] = self
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        del self._all[self._key]
        # Any other cancellation, such as the end of the run, must propagate.
        is_own = self.is_cancelled and self._task is not None and self._task.uncancel() == 0
        if is_own and isinstance(error, asyncio.CancelledError):
            raise RolloutCancelled(CANCELLED) from None

    def cancel(self) -> None:
        """Cancel the asyncio task that runs the rollout. A second call has no effect."""
        if self._task is not None and not self.is_cancelled:
            self.is_cancelled = True
            self._task.cancel()


class Floor(NamedTuple):
    """Functions of the collector that `Control` calls while rollouts can still start."""

    is_open: Callable[[], bool]
    """Returns whether any worker is still running."""
    widen: Callable[[], None]
    """Starts as many workers as the limit allows."""
    spawn: Callable[..., object]
    """Starts an asyncio task. The collection does not end before this task has ended."""
    more_rows: Callable[[], None]
    """Lets rollouts start again, because requeued rows are ready."""
    no_more_rows: Callable[[], None]
    """Records that no further row may start."""


class Control:
    """The state that control requests change and the collector follows. Use it only in the collector's event loop."""

    def __init__(
        self,
        run: OpenRun,
        limit: FixedLimit | AdaptiveLimit,
        *,
        allowed: Callable[[int], int],
        continues_a_group: Callable[[], bool],
        head_server: str,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        """Begin without requests. `head_server` is the address of the head server of the run's servers.

        `allowed` returns the given number of rollouts to run at once, or the largest possible number if that is lower.
        `continues_a_group` returns whether the next rollout must start, even during a pause or drain, because its
        group has begun. `on_stop` ends the collection at once. It is None if a request cannot stop the collection.
        """
        self._run = run
        self.record = run.record
        self.limit = limit
        self._allowed = allowed
        self._continues_a_group = continues_a_group
        self._head_server = head_server
        self._on_stop = on_stop
        self.is_draining = False
        self.floor: Floor | None = None
        """The collector's functions; None until the first rollouts start."""
        self._going = asyncio.Event()
        self._going.set()
        self._running: dict[TaskKey, Running] = {}
        self._cancelled: set[tuple[int, int | None]] = set()
        """The (task, repeat) pairs that may not start. A repeat of None means the whole task."""
        self._reopened: set[TaskKey] = set()
        """Requeued rollouts, which may start even if their task was cancelled before."""
        self._ended: dict[TaskKey, Ended] = {
            key: Ended(failures.attempts, failures.cause) for key, failures in run.earlier.given_up()
        }
        self._again: deque[Owed] = deque()
        self._loading = 0
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), run.summary.finished)])

    # Methods for the collector

    async def may_start(self) -> bool:
        """Wait while the collection is paused. Return whether another rollout may start."""
        if self._continues_a_group():
            return True
        if not self._going.is_set():
            await self._going.wait()
        return not self.is_draining

    def next_again(self) -> Owed | None:
        """Return the next requeued rollout, or None if no rollout is requeued."""
        return self._again.popleft() if self._again else None

    def is_cancelled(self, key: TaskKey) -> bool:
        """Return whether a rollout was cancelled before it started."""
        if not self._cancelled or key in self._reopened:
            return False
        return not self._cancelled.isdisjoint({(key.task, key.repeat), (key.task, None)})

    def running(self, row: Row, key: TaskKey) -> Running:
        """Return the context manager in which a rollout must run, so that it is listed and can be cancelled."""
        return Running(row, key, self._running)

    def end(self, record: Record, cause: str | None) -> None:
        """Remember an ended rollout without a score, because it may be requeued.

        `cause` is the cause of its last failed attempt, or None if no attempt has failed.
        """
        if record.outcome is not Outcome.SCORED:
            row = record.row
            self._ended[row.key] = Ended(row.attempt + 1, cause)

    def sample(self) -> None:
        """Note the number of ended rollouts, for the current rate. Called about once per second."""
        now = time.monotonic()
        self._samples.append((now, self._run.summary.finished))
        while len(self._samples) > 2 and self._samples[0][0] < now - RATE_OVER_S:
            self._samples.popleft()

    # Methods that carry out the control requests

    def pause(self) -> Mapping[str, object]:
        """Start no further rollout until `resume`. Running rollouts continue."""
        was = not self._going.is_set()
        self._check_open()
        self._going.clear()
        return {"changed": not was}

    def resume(self) -> Mapping[str, object]:
        """Let new rollouts start again after `pause`."""
        was = self._going.is_set()
        self._going.set()
        return {"changed": not was}

    def concurrency(self, wanted: int | None) -> Mapping[str, object]:
        """Set how many rollouts run at once; None adapts the number to the measured throughput.

        If the number is lowered, running rollouts are not cancelled. Others start only when fewer than the new number
        are running.
        """
        floor = self._check_open()
        before = self.limit.limit, isinstance(self.limit, AdaptiveLimit)
        if wanted is not None:
            self.limit = FixedLimit(self._allowed(wanted))
        elif not isinstance(self.limit, AdaptiveLimit):
            self.limit = AdaptiveLimit(self._allowed(MOST_AT_ONCE), first=self.limit.limit)
        self.record.concurrency = self.limit
        floor.widen()
        now = self.limit.limit, isinstance(self.limit, AdaptiveLimit)
        return {"changed": before != now, "concurrency": now[0]}

    def cancel(self, task: int, repeat: int | None = None) -> Mapping[str, object]:
        """Cancel the running rollouts of a task, or only one repeat, and count them as failed.

        Rollouts that have not started yet fail when their turn comes.
        """
        self._check_open()
        self._cancelled.add((task, repeat))
        self._reopened = {key for key in self._reopened if not _is_of(key, task, repeat)}
        found = [each for key, each in self._running.items() if _is_of(key, task, repeat)]
        for each in found:
            each.cancel()
        return {"running": len(found)}

    def requeue(self, task: int | None = None, repeat: int | None = None) -> Mapping[str, object]:
        """Run rollouts without a score again, as new attempts: all of the run, those of a task, or one repeat."""
        floor = self._check_open()
        if self.is_draining:
            raise Refused("the collection is ending, because it was drained. Resume the collection after it has ended")
        if self._run.has_groups:
            raise Refused(
                "rollouts of this run are verified together, so none can run again alone. Resume the collection after "
                "it has ended"
            )
        chosen = {key: ended for key, ended in self._ended.items() if _is_of(key, task, repeat)}
        for key, ended in chosen.items():
            del self._ended[key]
            self._reopened.add(key)
            self._run.summary.reopen(ended.cause)
        if chosen:
            self._loading += len(chosen)
            floor.spawn(self._load(chosen, floor))
        return {"requeued": len(chosen)}

    def drain(self, reason: str = DRAINED) -> Mapping[str, object]:
        """Start no further rollout, and end when the running ones have ended."""
        floor = self._check_open()
        was, self.is_draining = self.is_draining, True
        self._run.summary.ended_by = self._run.summary.ended_by or reason
        self._going.set()
        floor.no_more_rows()
        return {"changed": not was, "running": len(self._running)}

    def stop(self) -> Mapping[str, object]:
        """End the collection at once, as an interrupt does. Running rollouts stay unresolved."""
        if self._on_stop is None:
            raise Refused("this collection can only be stopped by the program that runs it")
        asyncio.get_running_loop().call_later(STOP_AFTER_S, self._on_stop)
        return {"running": len(self._running)}

    def status(self) -> Mapping[str, object]:
        """Return the state, the outcomes so far, and the rollouts that have been running the longest."""
        summary, now, state = self._run.summary, time.monotonic(), self._state()
        failed = summary.failed_by_cause + summary.failed_before
        began_at, before = self._samples[0]
        oldest = heapq.nsmallest(OLDEST_SHOWN, self._running.items(), key=lambda item: item[1].began_at)
        return {
            "run_id": self.record.run_id, "state": state, "head_server": self._head_server,
            "planned": summary.planned, "scored": summary.scored, "failed": dict(failed),
            "unresolved": summary.planned - summary.scored - failed.total(), "mean_reward": summary.mean_reward,
            "running": len(self._running), "requeued": self._loading + len(self._again),
            "concurrency": self.limit.limit, "is_adaptive": isinstance(self.limit, AdaptiveLimit),
            "rollouts_per_s": round((summary.finished - before) / max(now - began_at, 1e-9), 2),
            "left_s": summary.left_s if state == "collecting" else None,
            "longest": [
                {**key._asdict(), "attempt": each.attempt, "seconds": round(now - each.began_at, 1)}
                for key, each in oldest
            ],
        }  # fmt: skip

    def _state(self) -> str:
        if self.is_draining:
            return "draining"
        if not self._going.is_set():
            return "paused"
        if self.floor is None:
            return "starting"
        return "collecting" if self._is_open() else "ending"

    async def _load(self, chosen: Mapping[TaskKey, Ended], floor: Floor) -> None:
        try:
            path = self._run.files.materialized
            rows = await asyncio.to_thread(lambda: [row for row in rows_in(path) if row.key in chosen])
            self._again.extend(Owed(row.of_attempt(chosen[row.key].attempts), chosen[row.key].cause) for row in rows)
        finally:
            self._loading -= len(chosen)
        floor.more_rows()
        floor.widen()

    def _is_open(self) -> bool:
        return self.floor is not None and (self._loading > 0 or self.floor.is_open())

    def _check_open(self) -> Floor:
        if self.floor is None or not self._is_open():
            raise Refused("no rollouts are running, because the collection is starting or its rollouts have ended")
        return self.floor


def _is_of(key: TaskKey, task: int | None, repeat: int | None) -> bool:
    return task in (None, key.task) and repeat in (None, key.repeat)

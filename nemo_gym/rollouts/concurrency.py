"""Adaptive concurrency: find by measurement how many rollouts to run at once, and record the steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

FIRST_LIMIT = 16
LEAST_WINDOW_S = 1.0
LONGEST_WINDOW_S = 20.0
ROUNDS = 2
"""The number of rollouts per slot in a measurement window, so that the window is a representative sample."""

WORTH_DOUBLING = 1.2
"""The factor by which throughput must grow for the limit to be doubled again."""
WORTH_GROWING = 1.03
SLOWER = 1.5
"""If rollouts take this many times as long as before and throughput drops, the limit is lowered."""
LESS = 0.8
BACK_OFF = 0.7
GROWTH = 0.1
WINDOWS_BETWEEN_PROBES = 4
OVERLOADED_SHARE = 0.01
STEPS_KEPT = 200


@dataclass(frozen=True)
class Step:
    """A measurement window and the resulting decision."""

    at_s: float
    limit: int
    per_s: float
    median_s: float
    overloaded: int
    then: int
    """The new limit."""
    why: str

    def as_dict(self) -> dict[str, object]:
        """Return the step in the format of the run's record."""
        return {
            "at_s": round(self.at_s, 1), "limit": self.limit, "rollouts_per_s": round(self.per_s, 2),
            "median_s": round(self.median_s, 3), "overloaded": self.overloaded, "then": self.then, "why": self.why,
        }  # fmt: skip


class _Measured(NamedTuple):
    limit: int
    per_s: float
    median_s: float

    def averaged(self, other: _Measured) -> _Measured:
        return _Measured(self.limit, (self.per_s + other.per_s) / 2, (self.median_s + other.median_s) / 2)


class _Decision(NamedTuple):
    then: int
    """The new limit."""
    why: str


@dataclass(frozen=True)
class FixedLimit:
    """A concurrency limit that never changes."""

    limit: int

    def ended(self, seconds: float, *, was_overloaded: bool = False) -> bool:
        """Return False, because the limit never changes."""
        return False


@dataclass
class AdaptiveLimit:
    """A concurrency limit that grows while throughput grows, and shrinks if a server or endpoint is overloaded.

    The limit doubles until doubling no longer helps. After that, it occasionally tries 10 % more or less. It is
    lowered after a measurement window in which more than 1 % of the rollouts had an overload, or in which rollouts
    took longer and throughput dropped.
    """

    most: int
    """The upper bound of the limit, such as the number of available connections."""
    first: int = FIRST_LIMIT
    clock: Callable[[], float] = time.monotonic
    steps: list[Step] = field(default_factory=list)
    """The latest steps, at most `STEPS_KEPT`."""

    def __post_init__(self) -> None:
        self.limit = min(self.first, self.most)
        self._began_at = self._window_at = self.clock()
        self._seconds: list[float] = []
        self._overloaded = 0
        self._base: _Measured | None = None
        """The measurement that others are compared with; None if not measured yet. Another limit is on trial."""
        self._is_doubling = True
        self._windows_held = 0
        self._probes_up = False

    def ended(self, seconds: float, *, was_overloaded: bool = False) -> bool:
        """Count a rollout that took `seconds`. Return whether the limit has changed."""
        self._seconds.append(seconds)
        self._overloaded += was_overloaded
        now = self.clock()
        lasted_s = now - self._window_at
        is_full = len(self._seconds) >= ROUNDS * self.limit and lasted_s >= LEAST_WINDOW_S
        if not is_full and lasted_s < LONGEST_WINDOW_S:
            return False
        before = self.limit
        per_s, median_s = len(self._seconds) / max(lasted_s, 1e-6), statistics.median(self._seconds)
        then, why = self._decision(_Measured(before, per_s, median_s))
        self.steps.append(Step(now - self._began_at, before, per_s, median_s, self._overloaded, then, why))
        del self.steps[:-STEPS_KEPT]
        self._seconds, self._overloaded, self._window_at, self.limit = [], 0, now, then
        return then != before

    def _decision(self, measured: _Measured) -> _Decision:
        base = self._base
        if self._overloaded > OVERLOADED_SHARE * len(self._seconds):
            return self._lowered(BACK_OFF, "overloaded")
        if base is not None and base.limit != self.limit:
            return self._after_trial(measured, base)
        if base is not None and measured.median_s > SLOWER * base.median_s and measured.per_s < LESS * base.per_s:
            return self._lowered(LESS, "slower, with less throughput")
        # Average the reference measurement with the latest one, because the tasks change during a run.
        self._base = measured if base is None else base.averaged(measured)
        if self._is_doubling:
            return self._try(up=True)
        self._windows_held += 1
        if base is None or self._windows_held < WINDOWS_BETWEEN_PROBES:
            return _Decision(self.limit, "measured" if base is None else "held")
        self._probes_up = not self._probes_up
        return self._try(up=self._probes_up)

    def _after_trial(self, measured: _Measured, base: _Measured) -> _Decision:
        was_up = measured.limit > base.limit
        wanted = WORTH_DOUBLING if self._is_doubling else WORTH_GROWING if was_up else 1.0
        if measured.per_s >= wanted * base.per_s:
            self._base = measured
            # Take another step in the same direction, because this one helped.
            return self._try(up=was_up)
        self._windows_held = 0
        if self._is_doubling:
            self._is_doubling = False
            self._base = max(base, measured, key=lambda each: each.per_s)
            return _Decision(self._base.limit, "doubling did not help")
        return _Decision(base.limit, "a few more did not help" if was_up else "a few fewer lowered throughput")

    def _try(self, *, up: bool) -> _Decision:
        """Change the limit by a step if the bounds allow it."""
        step = self.limit if self._is_doubling else max(1, round(GROWTH * self.limit))
        then = min(self.most, self.limit + step) if up else max(1, self.limit - step)
        if then == self.limit:
            why = "maximum reached" if self._is_doubling else "held"
            self._is_doubling, self._windows_held = False, 0
            return _Decision(then, why)
        why = "throughput grew" if self._is_doubling else "trying a few more" if up else "trying a few fewer"
        return _Decision(then, why)

    def _lowered(self, factor: float, why: str) -> _Decision:
        self._base, self._is_doubling, self._windows_held = None, False, 0
        return _Decision(max(1, int(self.limit * factor)), why)

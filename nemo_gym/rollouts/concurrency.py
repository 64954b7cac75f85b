"""Adaptive concurrency: find by measurement how many rollouts to run at once, and record the steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from nemo_gym.jsonl import JsonObject

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


class Phase(StrEnum):
    """The phase of the search for the best limit."""

    DOUBLING = "doubling"
    PROBING = "probing"
    HOLDING = "holding"


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

    def as_dict(self) -> JsonObject:
        """Return the step in the format of the run's record."""
        return {
            "at_s": round(self.at_s, 1), "limit": self.limit, "rollouts_per_s": round(self.per_s, 2),
            "median_s": round(self.median_s, 3), "overloaded": self.overloaded, "then": self.then, "why": self.why,
        }  # fmt: skip


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
        self._phase = Phase.DOUBLING
        self._began_at = self._window_at = self.clock()
        self._seconds: list[float] = []
        self._overloaded = 0
        self._base: tuple[int, float, float] | None = None
        """The limit to compare others with, its throughput, and its median duration; None if not measured yet."""
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
        self._decide(len(self._seconds) / max(lasted_s, 1e-6), statistics.median(self._seconds), now)
        self._seconds, self._overloaded, self._window_at = [], 0, now
        return self.limit != before

    def _decide(self, per_s: float, median_s: float, now: float) -> None:
        overloaded = self._overloaded
        if overloaded > OVERLOADED_SHARE * len(self._seconds):
            then, why = self._lowered(BACK_OFF), "overloaded"
            self._hold(None)
        elif self._phase is Phase.DOUBLING:
            then, why = self._after_doubling(per_s, median_s)
        elif self._phase is Phase.PROBING:
            then, why = self._after_probe(per_s, median_s)
        else:
            then, why = self._after_holding(per_s, median_s)
        self.steps.append(Step(now - self._began_at, self.limit, per_s, median_s, overloaded, then, why))
        del self.steps[:-STEPS_KEPT]
        self.limit = then

    def _after_doubling(self, per_s: float, median_s: float) -> tuple[int, str]:
        if self._base is not None and per_s < WORTH_DOUBLING * self._base[1]:
            base = self._base
            if per_s > base[1]:
                base = (self.limit, per_s, median_s)
            self._hold(base)
            return base[0], "doubling did not help"
        self._base = (self.limit, per_s, median_s)
        if self.limit == self.most:
            self._hold(self._base)
            return self.limit, "maximum reached"
        return min(self.most, 2 * self.limit), "throughput grew"

    def _after_probe(self, per_s: float, median_s: float) -> tuple[int, str]:
        assert self._base is not None
        limit, base_per_s, _ = self._base
        was_up = self.limit > limit
        if per_s < (WORTH_GROWING if was_up else 1.0) * base_per_s:
            self._hold(self._base)
            return limit, "a few more did not help" if was_up else "a few fewer lowered throughput"
        self._base = (self.limit, per_s, median_s)
        # Take another step in the same direction, because this one helped.
        return self._probe(up=was_up)

    def _after_holding(self, per_s: float, median_s: float) -> tuple[int, str]:
        self._windows_held += 1
        if self._base is None:
            self._base = (self.limit, per_s, median_s)
            return self.limit, "measured"
        _, base_per_s, base_median_s = self._base
        if median_s > SLOWER * base_median_s and per_s < LESS * base_per_s:
            self._hold(None)
            return self._lowered(LESS), "slower, with less throughput"
        # Average the reference measurement with the latest one, because the tasks change during a run.
        self._base = (self.limit, (base_per_s + per_s) / 2, (base_median_s + median_s) / 2)
        if self._windows_held < WINDOWS_BETWEEN_PROBES:
            return self.limit, "held"
        self._probes_up = not self._probes_up
        return self._probe(up=self._probes_up)

    def _probe(self, *, up: bool) -> tuple[int, str]:
        step = max(1, round(GROWTH * self.limit))
        then = min(self.most, self.limit + step) if up else max(1, self.limit - step)
        if then == self.limit:
            self._hold(self._base)
            return then, "held"
        self._phase = Phase.PROBING
        return then, "trying a few more" if up else "trying a few fewer"

    def _lowered(self, factor: float) -> int:
        return max(1, int(self.limit * factor))

    def _hold(self, base: tuple[int, float, float] | None) -> None:
        self._phase, self._base, self._windows_held = Phase.HOLDING, base, 0

"""The head server of a simulated run: the reports of its parts, and the look-ups of their callers."""

from __future__ import annotations

import random
from functools import partial

from bench.scale_constants import Constants
from bench.stations import Clock, Job, Machine, Process, Stages


class Head:
    """A head server on a core of its own."""

    def __init__(self, clock: Clock, constants: Constants, generator: random.Random, parts: int, callers: int) -> None:
        """`parts` report that they are alive. `callers` are the processes that look up addresses."""
        self.process = Process(Machine(clock, 1))
        self.lookups = 0
        self.lookup_delays_s: list[float] = []
        self.lookups_timed_out = 0
        self.lost_by_mistake = 0
        """How often a report was so late that a healthy part counted as lost."""
        self._clock = clock
        self._constants = constants
        self._random = generator
        self._callers = callers
        self._seen_at = [0.0] * parts
        self._report_s = (constants.heartbeat_us + constants.heartbeat_part_us * parts) / 1e6
        self._lookup_s = (constants.lookup_us + constants.lookup_part_us * parts) / 1e6

    def start(self) -> None:
        """Let all parts and callers begin, each at its own moment."""
        for part in range(len(self._seen_at)):
            self._clock.after(self._random.random() * self._constants.heartbeat_s, self._report, part)
        for _ in range(self._callers):
            self._clock.after(self._random.random() * self._constants.refresh_s, partial(self._look_up, again=True))

    def storm(self, noticed_after_s: float) -> None:
        """Let every caller look up a failed part, and again until the head server knows that it is lost.

        This is the worst case: rollouts whose servers are on one node have few callers elsewhere.
        """
        after_s = 0.0
        while after_s < noticed_after_s:
            for _ in range(self._callers):
                # Calls notice the failure when they are sent, not all in one moment.
                self._clock.after(after_s + self._random.random(), partial(self._look_up, again=False))
            after_s += self._constants.distrust_s

    def _report(self, part: int) -> None:
        Job(self._reporting(part)).go_on()

    def _reporting(self, part: int) -> Stages:
        yield self.process, self._report_s
        now = self._clock.now
        if now - self._seen_at[part] > self._constants.lost_after_s:
            self.lost_by_mistake += 1
        self._seen_at[part] = now
        self._clock.after(self._constants.heartbeat_s, self._report, part)

    def _look_up(self, *, again: bool) -> None:
        Job(self._looking_up(self._clock.now, again)).go_on()

    def _looking_up(self, began_at: float, again: bool) -> Stages:
        yield self.process, self._lookup_s
        now = self._clock.now
        self.lookups += 1
        self.lookup_delays_s.append(now - began_at)
        self.lookups_timed_out += now - began_at > self._constants.lookup_timeout_s
        if again:
            # A process has one look-up at a time.
            self._clock.at(max(now, began_at + self._constants.refresh_s), partial(self._look_up, again=True))

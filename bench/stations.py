"""The parts of a discrete-event simulation: a clock, and the stations at which jobs wait and are served.

A job is a generator that yields `(station, work)` and goes on when the station has done the work. Work is seconds of
CPU for a process, tokens for an engine, bytes for a pipe, and seconds for a delay.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

NEVER = float("inf")


class Station(Protocol):
    """A place that serves jobs."""

    def take(self, job: Job, work: float) -> None:
        """Serve a job, then let it go on."""


Stages = Iterator[tuple[Station, float]]


class Clock:
    """The simulated time, and the calls that are due later."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.is_stopped = False
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        # Ties are decided by age, so that a simulation with the same seed repeats exactly.
        self._ages = itertools.count()

    def at(self, moment: float, do: Callable[..., None], *given: Any) -> None:
        """Call `do` at a moment."""
        heapq.heappush(self._due, (moment, next(self._ages), do, given))

    def after(self, seconds: float, do: Callable[..., None], *given: Any) -> None:
        """Call `do` once this many seconds have passed."""
        heapq.heappush(self._due, (self.now + seconds, next(self._ages), do, given))

    def run(self, until: float = NEVER) -> None:
        """Let time pass until a moment, until nothing is due, or until `is_stopped`."""
        due = self._due
        while due and not self.is_stopped and due[0][0] <= until:
            self.now, _, do, given = heapq.heappop(due)
            self.events += 1
            do(*given)


class Job:
    """One job on its way from station to station."""

    __slots__ = ("_stages", "engine", "is_alive")

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self.is_alive = True
        self.engine: Engine | None = None
        """The engine that serves it now."""

    def go_on(self) -> None:
        """Go to the next station. The generator's end is the job's end."""
        if self.is_alive:
            following = next(self._stages, None)
            if following is None:
                self.is_alive = False
            else:
                station, work = following
                station.take(self, work)

    def cancel(self) -> None:
        """Drop the job. Stations skip it."""
        if self.is_alive:
            self.is_alive = False
            if self.engine is not None:
                self.engine.drop(self)


class Delay:
    """A station that serves any number of jobs at once; the work is the time it takes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def take(self, job: Job, work: float) -> None:
        """Let a job go on after a time."""
        self._clock.after(work, job.go_on)


class Machine:
    """The cores of a machine, which its processes take in turns."""

    def __init__(self, clock: Clock, cores: int) -> None:
        self.clock = clock
        self.cores = cores
        self.busy_s = 0.0
        self._free = cores
        self._ready: deque[Process] = deque()

    def ask_for_core(self, process: Process) -> None:
        """Start a process's next job on a free core, or once one is free."""
        if self._free:
            self._free -= 1
            process.work_on()
        else:
            self._ready.append(process)

    def end_turn(self, process: Process, *, has_more: bool) -> None:
        """Give the core to the process that has waited longest."""
        if self._ready:
            if has_more:
                self._ready.append(process)
            self._ready.popleft().work_on()
        elif has_more:
            process.work_on()
        else:
            self._free += 1


class Process:
    """A process with one event loop: first come, first served, one job at a time."""

    def __init__(self, machine: Machine) -> None:
        self.busy_s = 0.0
        self._machine = machine
        self._clock = machine.clock
        self._waiting: deque[tuple[Job, float]] = deque()
        self._is_active = False

    def take(self, job: Job, work: float) -> None:
        """Do this many seconds of work for a job."""
        self._waiting.append((job, work))
        if not self._is_active:
            self._is_active = True
            self._machine.ask_for_core(self)

    def work_on(self) -> None:
        """Start the next job, on a core that this process now has."""
        job, work = self._waiting.popleft()
        if not job.is_alive:
            work = 0.0
        self._clock.after(work, self._finish, job, work)

    def _finish(self, job: Job, work: float) -> None:
        self.busy_s += work
        self._machine.busy_s += work
        has_more = self._is_active = bool(self._waiting)
        self._machine.end_turn(self, has_more=has_more)
        job.go_on()


class Pipe:
    """A link or a disk: first come, first served, so many bytes per second."""

    def __init__(self, clock: Clock, bytes_per_s: float) -> None:
        self.sent_bytes = 0.0
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def take(self, job: Job, work: float) -> None:
        """Send this many bytes, after those before."""
        self.sent_bytes += work
        self._free_at = max(self._free_at, self._clock.now) + work / self._bytes_per_s
        self._clock.at(self._free_at, job.go_on)


class Engine:
    """A model endpoint: all sequences advance at the same speed, until they share its capacity."""

    def __init__(self, clock: Clock, tokens_per_s: float, most_tokens_per_s: float) -> None:
        """`tokens_per_s` is the speed of one sequence, `most_tokens_per_s` that of all together."""
        self.done_tokens = 0.0
        self._clock = clock
        self._speed = tokens_per_s
        self._capacity = most_tokens_per_s
        self._active = 0
        self._progress = 0.0
        """Tokens that a sequence active since the start would have by now."""
        self._seen_at = 0.0
        self._ends: list[tuple[float, int, Job]] = []
        self._ages = itertools.count()
        self._alarm_at = NEVER

    def take(self, job: Job, work: float) -> None:
        """Generate this many tokens for a job."""
        self._advance()
        self._active += 1
        job.engine = self
        heapq.heappush(self._ends, (self._progress + work, next(self._ages), job))
        self._set_alarm()

    def drop(self, job: Job) -> None:
        """Stop generating for a job that was cancelled."""
        self._advance()
        self._active -= 1
        job.engine = None
        self._set_alarm()

    def _rate(self) -> float:
        return min(self._speed, self._capacity / self._active)

    def _advance(self) -> None:
        """Bring the progress up to now."""
        if self._active:
            tokens = (self._clock.now - self._seen_at) * self._rate()
            self._progress += tokens
            self.done_tokens += tokens * self._active
        self._seen_at = self._clock.now

    def _set_alarm(self) -> None:
        """Wake up at the next end. An alarm that is too early only sets another one."""
        while self._ends and not self._ends[0][2].is_alive:
            heapq.heappop(self._ends)
        if not self._ends:
            return
        ends_at = self._clock.now + max(0.0, self._ends[0][0] - self._progress) / self._rate()
        if ends_at < self._alarm_at:
            self._alarm_at = ends_at
            self._clock.at(ends_at, self._look, ends_at)

    def _look(self, alarm_at: float) -> None:
        if alarm_at != self._alarm_at:
            return
        self._alarm_at = NEVER
        self._advance()
        ended = []
        # A rounding error must not leave a sequence with a billionth of a token to go.
        while self._ends and (self._ends[0][0] <= self._progress + 1e-6 or not self._ends[0][2].is_alive):
            job = heapq.heappop(self._ends)[2]
            if job.is_alive:
                self._active -= 1
                job.engine = None
                ended.append(job)
        self._set_alarm()
        for job in ended:
            job.go_on()


class Gate:
    """The admission of a server: so many calls at once, a queue, and callers that try again for a while."""

    def __init__(
        self, clock: Clock, slots: int, queued: int, patience_s: float, refuse: Callable[[Job], None] = Job.cancel
    ) -> None:
        """`refuse` is called for a job that found the queue full for `patience_s` seconds."""
        self._clock = clock
        self._slots = slots
        self._queued = queued
        self._patience_s = patience_s
        self._in_flight = 0
        self._queue: deque[Job] = deque()
        self._refuse = refuse
        self._at_the_door: dict[Job, None] = {}

    def take(self, job: Job, work: float) -> None:
        """Admit a job, or let it wait for a slot. Cancel it if the queue stays full for too long."""
        if self._in_flight < self._slots:
            self._in_flight += 1
            self._clock.after(0.0, job.go_on)
        elif len(self._queue) < self._queued:
            self._queue.append(job)
        else:
            self._at_the_door[job] = None
            self._clock.after(self._patience_s, self._give_up, job)

    def leave(self) -> None:
        """Pass the slot of a job that has ended to the next one."""
        while self._queue:
            job = self._queue.popleft()
            while self._at_the_door and len(self._queue) < self._queued:
                first = next(iter(self._at_the_door))
                del self._at_the_door[first]
                self._queue.append(first)
            if job.is_alive:
                self._clock.after(0.0, job.go_on)
                return
        self._in_flight -= 1

    def _give_up(self, job: Job) -> None:
        if job in self._at_the_door:
            del self._at_the_door[job]
            self._refuse(job)

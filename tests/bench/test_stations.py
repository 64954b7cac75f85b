"""Tests of the stations of `bench scale` against the formulas of queueing theory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from bench.stations import Clock, Delay, Engine, Gate, Job, Machine, Pipe, Process, Stages, Station

CUSTOMERS = 40_000


class Queue:
    """Customers that arrive at random at stations, and how long they stay."""

    def __init__(self, clock: Clock, arrivals_per_s: float, station: Callable[[], Station], work: Callable[[], float]):
        self.stays_s: list[float] = []
        self.present_s = 0.0
        self._clock, self._station, self._work = clock, station, work
        self._random = random.Random(7)
        self._arrivals_per_s = arrivals_per_s
        self._arrive()
        clock.run()

    def _arrive(self) -> None:
        if len(self.stays_s) < CUSTOMERS:
            Job(self._through(self._clock.now)).go_on()
            self._clock.after(self._random.expovariate(self._arrivals_per_s), self._arrive)

    def _through(self, began_at: float) -> Stages:
        yield self._station(), self._work()
        self.stays_s.append(self._clock.now - began_at)

    @property
    def mean_s(self) -> float:
        return sum(self.stays_s) / len(self.stays_s)


def exponential(seconds: float) -> Callable[[], float]:
    generator = random.Random(11)
    return lambda: generator.expovariate(1 / seconds)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_process_is_an_mm1_queue(load: float):
    clock = Clock()
    process = Process(Machine(clock, 1))
    queue = Queue(clock, load, lambda: process, exponential(1.0))
    assert queue.mean_s == pytest.approx(1 / (1 - load), rel=0.08)
    assert process.busy_s / clock.now == pytest.approx(load, rel=0.03)


@pytest.mark.parametrize("cores", [2, 5])
def test_machine_is_an_mmc_queue(cores: int):
    load = 0.8
    clock = Clock()
    machine = Machine(clock, cores)
    queue = Queue(clock, load * cores, lambda: Process(machine), exponential(1.0))
    offered = load * cores
    last = offered**cores / math.factorial(cores) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(cores)) + last)
    assert queue.mean_s == pytest.approx(1 + waits / (cores - offered), rel=0.08)
    assert machine.busy_s / cores / clock.now == pytest.approx(load, rel=0.03)


@pytest.mark.parametrize("work", [exponential(1.0), lambda: 1.0])
def test_engine_shares_its_capacity(work: Callable[[], float]):
    # The mean stay under processor sharing depends only on the mean of the work.
    clock = Clock()
    engine = Engine(clock, 1.0, 1.0)
    queue = Queue(clock, 0.6, lambda: engine, work)
    assert queue.mean_s == pytest.approx(1 / (1 - 0.6), rel=0.08)
    assert engine.done_tokens / clock.now == pytest.approx(0.6, rel=0.03)


def test_stays_follow_littles_law():
    clock = Clock()
    process = Process(Machine(clock, 1))
    queue = Queue(clock, 0.5, lambda: process, exponential(1.0))
    # With an M/M/1 queue at a load of one half, one customer is present on average.
    assert sum(queue.stays_s) / clock.now == pytest.approx(1.0, rel=0.08)


def finishing(clock: Clock, *stations: tuple[Station, float]) -> tuple[Job, list[float]]:
    """Send a job through stations, and return it with the list that receives the moment of its end."""
    ends: list[float] = []

    def stages() -> Stages:
        yield from stations
        ends.append(clock.now)

    job = Job(stages())
    job.go_on()
    return job, ends


def test_engine_below_its_capacity_has_full_speed():
    clock = Clock()
    engine = Engine(clock, 50.0, 10_000.0)
    ends = [finishing(clock, (engine, tokens))[1] for tokens in (100.0, 500.0, 50.0)]
    clock.run()
    assert [end for (end,) in ends] == pytest.approx([2.0, 10.0, 1.0])


def test_cancelled_sequence_frees_the_engine():
    clock = Clock()
    engine = Engine(clock, 10.0, 10.0)
    dropped, never = finishing(clock, (engine, 100.0))
    _, ends = finishing(clock, (engine, 100.0))
    clock.at(10.0, dropped.cancel)
    clock.run()
    # 50 tokens at half the speed until 10 s, then 50 at full speed.
    assert (never, ends) == ([], pytest.approx([15.0]))
    assert engine.done_tokens == pytest.approx(150.0)


def test_delay_and_pipe_take_their_time():
    clock = Clock()
    pipe = Pipe(clock, 100.0)
    ends = [finishing(clock, (Delay(clock), 1.0), (pipe, 200.0))[1] for _ in range(2)]
    clock.run()
    assert ends == [[3.0], [5.0]]


def test_cancelled_job_is_skipped_by_a_process():
    clock = Clock()
    process = Process(Machine(clock, 1))
    finishing(clock, (process, 1.0))
    waiting, never = finishing(clock, (process, 5.0))
    _, ends = finishing(clock, (process, 1.0))
    waiting.cancel()
    clock.run()
    assert (never, ends, process.busy_s) == ([], [2.0], 2.0)


def test_full_gate_refuses_after_its_patience():
    clock = Clock()
    refused: list[Job] = []
    gate = Gate(clock, 1, 1, 10.0, refuse=refused.append)
    jobs = [finishing(clock, (gate, 0.0)) for _ in range(4)]
    clock.at(5.0, gate.leave)
    clock.run()
    # The first leaves at 5 s, so the queue admits the second and has room for the third; the fourth gives up.
    assert [ends for _, ends in jobs] == [[0.0], [5.0], [], []]
    assert refused == [jobs[3][0]]

"""Adaptive concurrency against simulated servers of known capacity, with a simulated clock."""

import heapq
import itertools

import pytest

from nemo_gym.rollouts.concurrency import AdaptiveLimit

pytestmark = pytest.mark.slow


class Simulation:
    """Servers that take `latency_s` per rollout, and longer if more than `capacity` are running."""

    def __init__(self, capacity: float, latency_s: float = 1.0, most: int = 4096, refuses_beyond: float = 1e9) -> None:
        self.now = 0.0
        self.capacity = capacity
        self.latency_s = latency_s
        self.refuses_beyond = refuses_beyond
        self.limit = AdaptiveLimit(most, clock=lambda: self.now)
        self.under_way: list[tuple[float, float, bool]] = []

    def run(self, seconds: float) -> None:
        """Keep as many rollouts running as the limit allows."""
        until = self.now + seconds
        while self.now < until:
            while len(self.under_way) < self.limit.limit:
                crowd = max(1.0, (len(self.under_way) + 1) / self.capacity)
                refused = len(self.under_way) >= self.refuses_beyond
                heapq.heappush(self.under_way, (self.now + self.latency_s * crowd, self.now, refused))
            ends_at, began_at, refused = heapq.heappop(self.under_way)
            self.now = ends_at
            self.limit.ended(ends_at - began_at, was_overloaded=refused)


@pytest.mark.parametrize("capacity", [4, 40, 300, 1500])
def test_limit_settles_near_server_capacity(capacity):
    simulation = Simulation(capacity)
    simulation.run(600)
    assert 0.5 * capacity <= simulation.limit.limit <= max(20, 3 * capacity)


def test_limit_grows_to_maximum_without_overload():
    simulation = Simulation(capacity=1e9, most=700)
    simulation.run(120)
    assert simulation.limit.limit == 700


def test_limit_shrinks_when_calls_are_rejected():
    simulation = Simulation(capacity=1e9, refuses_beyond=100)
    simulation.run(600)
    assert 40 <= simulation.limit.limit <= 140
    assert any(step.why == "overloaded" for step in simulation.limit.steps)


def test_limit_follows_changing_server_capacity():
    simulation = Simulation(capacity=400)
    simulation.run(200)
    strong = simulation.limit.limit
    simulation.capacity = 50
    simulation.run(900)
    weak = simulation.limit.limit
    simulation.capacity = 400
    simulation.run(3000)
    assert weak < strong / 1.5
    assert simulation.limit.limit > 1.5 * weak


def test_limit_of_one_is_supported():
    simulation = Simulation(capacity=1, most=1)
    simulation.run(60)
    assert simulation.limit.limit == 1


def test_each_step_is_recorded():
    simulation = Simulation(capacity=40)
    simulation.run(60)
    steps = [step.as_dict() for step in simulation.limit.steps]
    assert steps[0] == {
        "at_s": 2.0, "limit": 16, "rollouts_per_s": 16.0, "median_s": 1.0, "overloaded": 0, "then": 32,
        "why": "throughput grew",
    }  # fmt: skip
    assert all(step["then"] == following["limit"] for step, following in itertools.pairwise(steps))
    simulation.run(20_000)
    assert len(simulation.limit.steps) <= 200

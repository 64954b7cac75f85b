"""The simulation of a collection on many machines, from the start of each rollout to its end."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.scale_constants import Constants
from bench.scale_head import Head
from bench.scale_setup import Setup, Visits, most_at_once
from bench.stations import Clock, Delay, Engine, Gate, Job, Machine, Pipe, Process, Stages

MB = 1e6
LEAST_ROLLOUTS = 2_000
LONGEST_S = 24 * 3600.0
"""Simulated seconds after which a simulation ends in any case."""


class Ended(NamedTuple):
    """One rollout that has ended."""

    number: int
    at_s: float
    took_s: float
    outcome: str


@dataclass
class Lost:
    """The cost of failed nodes."""

    failures: int = 0
    attempts: int = 0
    work_s: float = 0.0
    """Rollout-seconds that have to be done again."""
    waited_s: float = 0.0
    """Rollout-seconds until the loss was noticed and the rollouts began again."""


class Node:
    """One machine with an agent, a resources server, a model server and an engine."""

    def __init__(self, model: Collection, machine: Machine) -> None:
        constants, clock, replicas = model.constants, model.clock, range(model.setup.replicas)
        self.machine = machine
        self.agents = [Process(machine) for _ in replicas]
        self.resources = [Process(machine) for _ in replicas]
        self.models = [Process(machine) for _ in replicas]
        self.engine = Engine(clock, constants.tokens_per_s, constants.engine_tokens_per_s)
        self.rollouts: set[Rollout] = set()
        limits = (constants.slots, constants.queued, constants.full_patience_s)
        self.gates = [Gate(clock, *limits, refuse=model.refuse) for _ in replicas]


class Rollout(Job):
    """One attempt of a rollout."""

    __slots__ = ("attempt", "attempt_began_at", "began_at", "gate", "node", "number")

    def __init__(self, model: Collection, number: int, attempt: int, began_at: float, node: Node) -> None:
        super().__init__(model.stages(self))
        self.number = number
        self.attempt = attempt
        self.began_at = began_at
        self.attempt_began_at = model.clock.now
        self.node = node
        self.gate: Gate | None = None


@dataclass
class Collection:
    """A simulated collection."""

    setup: Setup
    constants: Constants = field(default_factory=Constants)

    def __post_init__(self) -> None:
        setup, constants = self.setup, self.constants
        self.clock = Clock()
        self.random = random.Random(setup.seed)
        self.ended: list[Ended] = []
        self.outcomes: Counter[str] = Counter()
        self.lost = Lost()
        self.in_flight = 0
        self.allowed = most_at_once(setup, constants)
        self._delay = Delay(self.clock)
        on_one = setup.mock_delay_s is not None
        cores = 2 if on_one else constants.cores
        self.nodes: list[Node | None] = [Node(self, Machine(self.clock, cores)) for _ in range(setup.nodes)]
        self.all_nodes = [node for node in self.nodes if node is not None]
        self._up = list(self.all_nodes)
        shared = self.all_nodes[0].machine
        self.collectors = [Process(shared if on_one else Machine(self.clock, cores)) for _ in range(setup.collectors)]
        self.links = [Pipe(self.clock, constants.link_gbit_s * 1e9 / 8) for _ in range(setup.collectors)]
        self.disks = [Pipe(self.clock, constants.disk_mb_s * MB) for _ in range(setup.collectors)]
        self.endpoint = Process(shared)
        self.head = (
            None
            if on_one
            else Head(self.clock, constants, self.random, setup.nodes, setup.nodes * setup.replicas + setup.collectors)
        )
        self._begun = 0
        self._planned = setup.rollouts or 2 * self.allowed + max(2 * self.allowed, LEAST_ROLLOUTS)
        self._visits = Visits.of(setup, constants, self.allowed)
        self.marked_at = 0.0
        self.done_before = self.done()

    def run(self) -> None:
        """Simulate the collection."""
        for _ in range(min(self.allowed, self._planned)):
            self._begin_next()
        if self.head is not None:
            self.head.start()
        if self.setup.random_failures:
            self._fail_randomly()
        self.clock.run(LONGEST_S)

    # One rollout

    def stages(self, rollout: Rollout) -> Stages:
        """Yield what one attempt passes through."""
        setup, cost = self.setup, self._visits
        collector = self.collectors[rollout.number % setup.collectors]
        link, disk = (each[rollout.number % setup.collectors] for each in (self.links, self.disks))
        node, at = rollout.node, rollout.number % setup.replicas
        agent, resources, model = node.agents[at], node.resources[at], node.models[at]
        yield collector, cost.collector
        yield node.gates[at], 0.0
        rollout.gate = node.gates[at]
        yield agent, cost.agent
        yield resources, cost.resources
        result_bytes = self.constants.row_kb * 1e3
        for call in range(self.constants.tool_calls + 1):
            yield agent, cost.agent
            yield model, cost.model
            if setup.mock_delay_s is None:
                tokens = self.random.lognormvariate(self.constants.answer_mu, self.constants.answer_sigma)
                result_bytes += tokens * self.constants.token_bytes
                yield node.engine, tokens
            else:
                yield self.endpoint, cost.endpoint
                yield self._delay, setup.mock_delay_s
            yield model, cost.model
            if call < self.constants.tool_calls:
                yield agent, cost.agent
                yield resources, cost.resources
        yield agent, cost.agent
        yield resources, cost.resources
        yield agent, cost.agent
        rollout.gate.leave()
        rollout.gate = None
        yield link, result_bytes
        yield collector, cost.collector
        yield disk, result_bytes
        self._end(rollout, "scored")

    def _begin_next(self) -> None:
        if self._begun < self._planned:
            self._begun += 1
            self.in_flight += 1
            self._begin(self._begun, 0, self.clock.now)

    def _begin(self, number: int, attempt: int, began_at: float) -> None:
        if not self._up:
            self.clock.after(self.constants.retry_pause_s, self._begin, number, attempt, began_at)
            return
        rollout = Rollout(self, number, attempt, began_at, self.random.choice(self._up))
        rollout.node.rollouts.add(rollout)
        left_s = began_at + self.constants.rollout_timeout_s - self.clock.now
        self.clock.after(max(0.0, left_s), self._time_out, rollout)
        rollout.go_on()

    def _time_out(self, rollout: Rollout) -> None:
        if rollout.is_alive:
            self._leave(rollout)
            self._end(rollout, "timeout")

    def refuse(self, job: Job) -> None:
        """End the attempt of a rollout whose agent was full for too long."""
        assert isinstance(job, Rollout)
        # Its time may have been over before its agent's patience.
        if job.is_alive:
            self._end_attempt(job, "overloaded")

    def _end_attempt(self, rollout: Rollout, outcome: str, noticed_after_s: float = 0.0) -> None:
        self._leave(rollout)
        if rollout.attempt + 1 >= self.constants.max_attempts:
            self._end(rollout, outcome)
            return
        pause_s = noticed_after_s + self.constants.retry_pause_s
        if self.clock.now + pause_s >= rollout.began_at + self.constants.rollout_timeout_s:
            self._end(rollout, outcome)
            return
        self.clock.after(pause_s, self._begin, rollout.number, rollout.attempt + 1, rollout.began_at)

    def _leave(self, rollout: Rollout) -> None:
        rollout.cancel()
        rollout.node.rollouts.discard(rollout)
        if rollout.gate is not None:
            rollout.gate.leave()
            rollout.gate = None

    def _end(self, rollout: Rollout, outcome: str) -> None:
        rollout.is_alive = False
        rollout.node.rollouts.discard(rollout)
        self.in_flight -= 1
        self.outcomes[outcome] += 1
        self.ended.append(Ended(rollout.number, self.clock.now, self.clock.now - rollout.began_at, outcome))
        number = len(self.ended)
        if self.setup.fails_at is not None and number == int(self.setup.fails_at * self._planned):
            self.fail(self.random.randrange(self.setup.nodes))
        if number == 2 * self.allowed:
            self._mark()
        self._begin_next()
        if number == self._planned or (not self.setup.rollouts and self._begun == self._planned):
            self.clock.is_stopped = True

    # Failures of nodes

    def fail(self, index: int) -> None:
        """Let a node fail with all its rollouts. It is back after a while, with fresh servers."""
        node = self.nodes[index]
        if node is None:
            return
        self.nodes[index] = None
        self._up.remove(node)
        constants, lost = self.constants, self.lost
        noticed_s = constants.lost_after_s - self.random.random() * constants.heartbeat_s
        lost.failures += 1
        for rollout in sorted(node.rollouts, key=lambda each: each.number):
            lost.attempts += 1
            lost.work_s += self.clock.now - rollout.attempt_began_at
            lost.waited_s += noticed_s + constants.retry_pause_s
            self._end_attempt(rollout, "lost", noticed_s)
        if self.head is not None:
            self.head.storm(noticed_s)
        self.clock.after(constants.back_after_s, self._come_back, index, node.machine.cores)

    def _come_back(self, index: int, cores: int) -> None:
        node = self.nodes[index] = Node(self, Machine(self.clock, cores))
        self._up.append(node)
        self.all_nodes.append(node)

    def _fail_randomly(self) -> None:
        per_s = self.constants.node_failures_per_h * self.setup.nodes / 3600
        if per_s:
            self.clock.after(self.random.expovariate(per_s), self._fail_one)

    def _fail_one(self) -> None:
        self.fail(self.random.randrange(self.setup.nodes))
        self._fail_randomly()

    # Measurement

    def _mark(self) -> None:
        """Begin the measurement: the first waves, which began at once and have no long rollouts yet, have passed."""
        self.marked_at = self.clock.now
        self.done_before = self.done()

    def done(self) -> dict[str, float]:
        """Return what each resource has done since the start: seconds of CPU, bytes or tokens."""
        return {
            "collector CPU": sum(each.busy_s for each in self.collectors),
            "collector network": sum(each.sent_bytes for each in self.links),
            "collector disk": sum(each.sent_bytes for each in self.disks),
            "agent CPU": sum(each.busy_s for node in self.all_nodes for each in node.agents),
            "resources CPU": sum(each.busy_s for node in self.all_nodes for each in node.resources),
            "model server CPU": sum(each.busy_s for node in self.all_nodes for each in node.models),
            "node cores": sum(node.machine.busy_s for node in self.all_nodes),
            "endpoint": sum(node.engine.done_tokens for node in self.all_nodes),
            "head CPU": self.head.process.busy_s if self.head else 0.0,
            "head network": self.head.lookups * self.constants.lookup_part_bytes * self.setup.nodes
            if self.head
            else 0.0,
        }

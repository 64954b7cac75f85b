"""The input of a simulation: the machines, the rollouts, and the work of one visit to each station."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

from bench.scale_constants import Constants
from nemo_gym.http.open_files import most_incoming_calls


@dataclass(frozen=True)
class Setup:
    """The machines and the rollouts of a simulation. Each node has an agent, a resources and a model server."""

    nodes: int
    in_flight: int
    """How many rollouts the collectors want to run at once, in all."""
    rollouts: int = 0
    """If 0, enough for a steady state; the simulation then ends when the last one begins."""
    collectors: int = 1
    replicas: int = 1
    """Processes of each server on a node."""
    mock_delay_s: float | None = None
    """One machine with two cores has everything, with an endpoint that takes this long, as in `bench rollouts`."""
    fails_at: float | None = None
    """The share of the rollouts after whose end a node fails."""
    random_failures: bool = False
    """Whether nodes fail at the rate of the constants."""
    seed: int = 1

    @property
    def agents(self) -> int:
        """The number of agent processes."""
        return self.nodes * self.replicas


def most_at_once(setup: Setup, constants: Constants) -> int:
    """Return how many rollouts the collectors run at once, which their open files limit."""
    each = min(math.ceil(setup.in_flight / setup.collectors), most_incoming_calls(constants.open_files))
    return min(setup.in_flight, each * setup.collectors)


class Visits(NamedTuple):
    """The CPU seconds of one visit to each process."""

    collector: float
    agent: float
    resources: float
    model: float
    endpoint: float

    @classmethod
    def of(cls, setup: Setup, constants: Constants, in_flight: int) -> Self:
        """Spread the CPU of a rollout over its visits."""
        tools = constants.tool_calls
        crowd = constants.crowded(in_flight / setup.agents)
        # The measured rollouts had one tool call, and results of about 4 KB.
        steps, megabytes = tools - 1, max(0.0, constants.result_mb - 0.004)

        def ms(name: str) -> float:
            once, step, size = (getattr(constants, f"{name}_{end}") for end in ("ms", "step_ms", "mb_ms"))
            return float(max(0.0, once + steps * step) + megabytes * size)

        # A call to one of several replicas looks at the addresses of all.
        choose_ms = constants.choose_us * setup.nodes / 1e3 if setup.nodes > 1 else 0.0
        calls_of_agent = 2 * tools + 3
        collector_ms = (ms("collector") + choose_ms) * constants.crowded(in_flight / setup.collectors)
        return cls(
            collector=collector_ms / 2 / 1e3,
            agent=(ms("agent") * crowd + choose_ms * calls_of_agent) / (2 * tools + 4) / 1e3,
            resources=(ms("resources") * crowd + constants.environment_ms) / (tools + 2) / 1e3,
            model=ms("model") * crowd / (2 * tools + 2) / 1e3,
            endpoint=constants.mock_endpoint_ms / (tools + 1) / 1e3,
        )

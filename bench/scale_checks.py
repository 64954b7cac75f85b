"""Compare the model with measured collections of one machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from bench.scale_constants import Constants
from bench.scale_model import Collection
from bench.scale_result import simulated
from bench.scale_setup import Setup

LEAST_S = 5.0
"""The least duration of a measured case (see bench/cost.py)."""


class Case(NamedTuple):
    """A measured case of `bench rollouts` with one process of each server."""

    in_flight: int
    delay_s: float
    measured_per_s: float

    @property
    def rollouts(self) -> int:
        """How many rollouts that measurement collected."""
        if self.delay_s:
            return max(2, math.ceil(LEAST_S / (2 * self.delay_s))) * self.in_flight
        return max(2 * self.in_flight, math.ceil(1.5 * LEAST_S * self.measured_per_s))


MEASURED = (
    Case(16, 0, 1415),
    Case(64, 0, 1656),
    Case(1024, 0, 1533),
    Case(4096, 0, 1303),
    Case(1024, 1, 440),
    Case(4096, 1, 1160),
)
"""bench/RESULTS.md, a rollout with one tool call, replicas 1."""


class Compared(NamedTuple):
    """A case with the model's throughput."""

    case: Case
    predicted_per_s: float

    @property
    def ratio(self) -> float:
        """The predicted throughput as a multiple of the measured one."""
        return self.predicted_per_s / self.case.measured_per_s


def compare(constants: Constants | None = None) -> Iterator[Compared]:
    """Simulate the measured cases: everything on two cores, with a small row and an endpoint of a fixed delay."""
    small = replace(constants or Constants(), tool_calls=1, environment_ms=0.0, row_kb=4.0, token_bytes=0.0)
    for case in MEASURED:
        setup = Setup(1, case.in_flight, rollouts=case.rollouts, mock_delay_s=case.delay_s)
        result = simulated(Collection(setup, small))
        yield Compared(case, result.rollouts_per_s)

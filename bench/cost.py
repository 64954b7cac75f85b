"""The cost of a rollout in one case: rollouts per second, CPU and memory by role."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from bench.job import LAUNCHER, ONE_TOOL, Environment, Servers, collect, endpoint, servers
from bench.processes import cpu_s, machine_time, pss_mb, tree_of

LEAST_S = 5.0
"""The minimum duration of a case that chooses its own number of rollouts."""
LEAST_WAVES = 2
LEAST_WARM_UP = 1000
SPEED_UP = 1.5
"""The maximum speed-up of a collection over its warm-up."""
ROLE_ORDER = ("agent", "resources", "model", "collector", LAUNCHER)


class Case(NamedTuple):
    """The parameters of one measurement."""

    in_flight: int
    delay_s: float
    rollouts: int = 0
    """If 0, enough for several seconds."""
    warm_up: int = 0
    """Rollouts before the measurement. If 0, the number in flight, with a minimum."""


class Measured(NamedTuple):
    """The result of one run of a case."""

    rollouts_per_s: float
    cpu_ms: dict[str, float]
    """CPU per rollout by role, without the collector's start."""
    pss_mb: float
    """Of all our processes during the run. If the run is short, after its end and without the collector."""
    others_share: float
    """The share of the machine's time used by other processes than ours, the endpoint and this program."""
    scored: int
    rollouts: int
    pss_by_role: dict[str, float]
    start_cpu_s: float
    """CPU of a collection of one rollout: the collector's start and end."""
    endpoint_us: float
    """CPU of the endpoint per rollout."""
    row_bytes: float
    """The mean length of a row of the results."""

    @property
    def cpu_ms_in_all(self) -> float:
        return sum(self.cpu_ms.values())


def measure(
    case: Case,
    dialect: str,
    steps: int,
    words: Sequence[str] = (),
    *,
    environment: Environment = ONE_TOOL,
    endpoint_words: Sequence[str] = (),
    start: Callable[..., AbstractContextManager[Servers]] = servers,
) -> Measured:
    """Run one case once on fresh servers, which `start` starts."""
    with (
        tempfile.TemporaryDirectory() as folder,
        endpoint(case.delay_s, steps, endpoint_words) as url,
        start(url, dialect, folder, words, environment=environment) as up,
    ):
        return _measured(case, steps, up, folder)


def _measured(case: Case, steps: int, up: Servers, folder: str) -> Measured:
    warm_up = case.warm_up or max(case.in_flight, 0 if case.delay_s else LEAST_WARM_UP)
    warm, _ = collect(up, folder, warm_up, case.in_flight)
    # Use the smaller of two, because other processes can only add to the cost.
    starts = [collect(up, folder, 1, 1)[0] for _ in range(2)]
    start_cpu_s = min(start.cpu_s for start in starts)
    start_s = min(start.took_s for start in starts) - case.delay_s * (steps + 1)
    rollouts = case.rollouts or _enough(case, steps, warm_up / max(0.001, warm.took_s - start_s))

    memory: dict[str, float] = {}

    def look(collector: int) -> None:
        memory.update(_pss_by_role({**up.pids, "collector": tree_of(collector)}))

    roles = {**up.pids, "endpoint": _endpoint(up)}
    before = {role: cpu_s(pids) for role, pids in roles.items()}
    ours_before, machine_before, began_at = cpu_s(tree_of(os.getpid())), machine_time(), time.perf_counter()
    collected, scored = collect(up, folder, rollouts, case.in_flight, look)
    took_s, machine_after = time.perf_counter() - began_at, machine_time()
    ours_s = cpu_s(tree_of(os.getpid())) - ours_before
    spent_s = {role: cpu_s(pids) - before[role] for role, pids in roles.items()}
    endpoint_s = spent_s.pop("endpoint")
    spent_s["collector"] = max(0.0, collected.cpu_s - start_cpu_s)
    memory = memory or _pss_by_role(up.pids)
    others_s = max(0.0, machine_after.busy_s - machine_before.busy_s - ours_s)
    return Measured(
        rollouts_per_s=rollouts / (took_s - start_s),
        cpu_ms=in_order({role: seconds * 1000 / rollouts for role, seconds in spent_s.items()}),
        pss_mb=sum(memory.values()),
        others_share=others_s / max(0.01, machine_after.total_s - machine_before.total_s),
        scored=scored,
        rollouts=rollouts,
        pss_by_role=in_order(memory),
        start_cpu_s=start_cpu_s,
        endpoint_us=endpoint_s * 1e6 / rollouts,
        row_bytes=collected.row_bytes,
    )


def _enough(case: Case, steps: int, rollouts_per_s: float) -> int:
    if case.delay_s:
        waves = max(LEAST_WAVES, math.ceil(LEAST_S / (case.delay_s * (steps + 1))))
        return waves * case.in_flight
    return max(LEAST_WAVES * case.in_flight, math.ceil(rollouts_per_s * LEAST_S * SPEED_UP))


def _endpoint(up: Servers) -> list[int]:
    """Return the pids of this program's children other than the servers."""
    return sorted({*tree_of(os.getpid())} - {os.getpid(), *tree_of(up.process.pid)})


def _pss_by_role(roles: Mapping[str, Sequence[int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for role, pids in roles.items():
        for pid in pids:
            # The collector may have ended meanwhile.
            with suppress(OSError):
                found[role] = found.get(role, 0.0) + pss_mb([pid])
    return found


def in_order(by_role: Mapping[str, float]) -> dict[str, float]:
    """Sort the roles in the order in which a rollout passes them."""
    return {role: by_role[role] for role in ROLE_ORDER if role in by_role}


def middle_of(runs: Sequence[Measured]) -> Measured:
    """Return the run with the median CPU per rollout, with the median speed of all runs."""
    middle = sorted(runs, key=lambda run: run.cpu_ms_in_all)[len(runs) // 2]
    return middle._replace(rollouts_per_s=statistics.median(run.rollouts_per_s for run in runs))


def shown(by_role: Mapping[str, float], digits: int) -> str:
    """Format the roles with a non-zero value on one line."""
    return ", ".join(f"{role} {value:.{digits}f}" for role, value in by_role.items() if value >= 0.5 * 10**-digits)

"""The results of a simulation: throughput, latency, and how much of each resource was used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Self

from bench.scale_constants import Constants
from bench.scale_model import Collection
from nemo_gym.http.open_files import most_incoming_calls


class Sign(NamedTuple):
    """How a user sees that a resource is used up, and what to change."""

    seen: str
    change: str


SPLIT = "split the input, with one collector per shard"
MORE_NODES = "+replicas=N, or more nodes"
LAG = "its loop lag is above 100 ms in `ng env top`"
SIGNS = {
    "collector CPU": Sign("the collector is at 100 % of a core in `top`, the servers are idle in `ng env top`", SPLIT),
    "collector network": Sign("the collector's link is full", SPLIT),
    "collector disk": Sign("the disk of the output is busy", f"write to a local disk, or {SPLIT}"),
    "collector files": Sign("the collector prints 'N rollouts run at once instead of M'", f"ulimit -n, or {SPLIT}"),
    "collector memory": Sign("the collector's memory grows in `top`", SPLIT),
    "agent CPU": Sign(LAG, MORE_NODES),
    "resources CPU": Sign(LAG, "`workers: N` in its block, or more nodes"),
    "model server CPU": Sign(LAG, MORE_NODES),
    "node cores": Sign("all cores are at 100 % in `top`", "more nodes"),
    "agent slots": Sign("`ng env top` shows queued and refused calls, rollouts end as overloaded", MORE_NODES),
    "agent files": Sign("503, 'as many connections as its limit on open files allows'", f"ulimit -n, {MORE_NODES}"),
    "node memory": Sign("the node's memory grows in `top`", "more nodes, or fewer in flight"),
    "endpoint": Sign("replies become slower, then rollouts end as timeout", "more engines, or fewer in flight"),
    "head CPU": Sign("`ng_status` is slow and shows healthy machines as lost", "fewer, larger parts"),
    "head network": Sign("the head server's link is full", "fewer, larger parts"),
}
"""By resource."""
FULL = 0.95
"""The share from which a resource counts as used up."""


class Use(NamedTuple):
    """How much of a resource was used."""

    used: float
    available: float
    unit: str

    @property
    def share(self) -> float:
        return self.used / self.available


class Result(NamedTuple):
    """The result of a simulation without its first waves, or of all of it if its number of rollouts is fixed."""

    nodes: int
    wanted: int
    in_flight: int
    rollouts: int
    rollouts_per_s: float
    mean_s: float
    median_s: float
    p99_s: float
    outcomes: dict[str, int]
    uses: dict[str, Use]
    """By resource, the scarcest first."""
    lost_share: float
    """The share of all work that failures of nodes cost at the rate of the constants: work done twice, and waiting."""
    lookup_p99_s: float
    lost_by_mistake: int
    """How often the head server was so late that a healthy node counted as lost."""
    events: int

    @property
    def first(self) -> str:
        """The scarcest resource."""
        return next(iter(self.uses))

    @property
    def failed_share(self) -> float:
        return 1 - self.outcomes.get("scored", 0) / max(1, sum(self.outcomes.values()))

    @classmethod
    def of(cls, model: Collection) -> Self:
        """Evaluate a simulation that has run."""
        setup, clock = model.setup, model.clock
        since = 0.0 if setup.rollouts else model.marked_at
        seconds = max(1e-9, clock.now - since)
        ended = [each for each in model.ended if each.at_s > since]
        times = sorted(each.took_s for each in ended) or [0.0]
        mean_s = sum(times) / len(times)
        uses = _uses(model, {} if setup.rollouts else model.done_before, seconds)
        return cls(
            nodes=setup.nodes,
            wanted=setup.in_flight,
            in_flight=model.allowed,
            rollouts=len(model.ended),
            rollouts_per_s=len(ended) / seconds,
            mean_s=mean_s,
            median_s=quantile(times, 0.5),
            p99_s=quantile(times, 0.99),
            outcomes=dict(Counter(each.outcome for each in ended)),
            uses=dict(sorted(uses.items(), key=lambda item: -item[1].share)),
            lost_share=lost_share(times, model.constants),
            lookup_p99_s=quantile(sorted(model.head.lookup_delays_s), 0.99) if model.head else 0.0,
            lost_by_mistake=model.head.lost_by_mistake if model.head else 0,
            events=clock.events,
        )


def simulated(model: Collection) -> Result:
    """Run a simulation and return its result."""
    model.run()
    return Result.of(model)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, or 0 without any."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def lost_share(times: Sequence[float], constants: Constants) -> float:
    """Return the share of the work that failures of nodes cost, from the durations of rollouts.

    A rollout in flight at a random moment has an age of E[T²] / 2 E[T] on average.
    """
    age_s = sum(each * each for each in times) / (2 * sum(times) or 1.0)
    noticed_s = constants.lost_after_s - constants.heartbeat_s / 2 + constants.retry_pause_s
    return constants.node_failures_per_h / 3600 * (age_s + noticed_s)


def _uses(model: Collection, before: dict[str, float], seconds: float) -> dict[str, Use]:
    setup, constants = model.setup, model.constants
    done = {name: amount - before.get(name, 0.0) for name, amount in model.done().items()}
    nodes, agents, collectors = setup.nodes, setup.agents, setup.collectors
    per_agent, per_node, per_collector = (model.allowed / each for each in (agents, nodes, collectors))
    link, row_kb = constants.link_gbit_s * 1e9 / 8, constants.result_mb * 1e3
    per_s = {
        "collector CPU": Use(0, collectors, "cores"),
        "collector network": Use(0, collectors * link / 1e6, "MB/s"),
        "collector disk": Use(0, collectors * constants.disk_mb_s, "MB/s"),
        "agent CPU": Use(0, agents, "cores"),
        "resources CPU": Use(0, agents, "cores"),
        "model server CPU": Use(0, agents, "cores"),
        "node cores": Use(0, nodes * constants.cores, "cores"),
        "endpoint": Use(0, nodes * constants.engine_tokens_per_s, "tokens/s"),
        "head CPU": Use(0, 1, "cores"),
        "head network": Use(0, link / 1e6, "MB/s"),
    }
    scaled = {"MB/s": 1e6}
    found = {name: use._replace(used=done[name] / seconds / scaled.get(use.unit, 1.0)) for name, use in per_s.items()}
    wanted = setup.in_flight / collectors
    files = constants.open_files
    found["collector files"] = Use(wanted, most_incoming_calls(files), "rollouts of a collector")
    found["collector memory"] = Use(per_collector * (constants.collector_kb + row_kb) / 1e6, constants.node_gb, "GB")
    found["agent slots"] = Use(per_agent, constants.slots, "rollouts of an agent")
    # A call that waits for a slot has only the connection of its caller.
    handled = min(per_agent, constants.slots)
    agent_files = handled * constants.agent_files + per_agent - handled
    found["agent files"] = Use(agent_files, files, "files of an agent")
    node_kb = constants.idle_mb * 1e3 * setup.replicas + per_node * (constants.node_kb + 2 * row_kb)
    found["node memory"] = Use(node_kb / 1e6, constants.node_gb, "GB")
    return found

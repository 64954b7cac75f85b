"""Compute what limits a run on many machines: the throughput, and how much of each resource it uses.

    python -m bench scale [--nodes 1 10 100 1000] [--in-flight 100 1000 10000 100000] [--collectors 1] [--replicas 1]
                          [--set NAME=VALUE …] [--constants]

Nothing is started or simulated: each rollout needs a known amount of each resource, so the scarcest one bounds the
throughput. Some figures are measured, some are set by the code and some are assumed; `--constants` lists them. The
program first compares the bound with measured collections on one machine. Each node has an engine and one process of
each server, and a rollout stays on one node. `in flight` is the number over all nodes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from nemo_gym.calls.directory import REFRESH_S
from nemo_gym.calls.joining import HEARTBEAT_S, LOST_AFTER_S
from nemo_gym.http.open_files import most_incoming_calls
from nemo_gym.web.limits import CallLimits

ROLLOUTS = "measured: bench/RESULTS.md, a rollout with one tool call, 64 in flight"
STEPS = "measured: bench/RESULTS.md, long rollouts: (30 steps − 1 step) / 29"
TOKENS = "measured: bench/RESULTS.md, token ids that no server parses: `tokens`, 1 MB, now"
MEMORY = "measured: bench/RESULTS.md, how many rollouts can be in flight: separate, 4,096"
HEAD = "measured: bench cluster, 1,000 parts of three servers"
MAY_BE_ZERO = ("_ms", "_us", "_kb", "_bytes", "_calls", "_per_h", "_pause_s", "crowding")
"""Ends of the names of figures that nothing is divided by."""
SHOWN = 2
FULL = 0.95
"""The share from which a resource counts as used up."""


def figure(value: float, unit: str, source: str) -> Any:
    """Return a field for a figure of the model, with its unit and its source."""
    return field(default=value, metadata={"unit": unit, "source": source})


@dataclass(frozen=True)
class Constants:
    """All figures of the model. `--set NAME=VALUE` changes one."""

    # CPU of a rollout
    agent_ms: float = figure(0.42, "ms per rollout", ROLLOUTS)
    resources_ms: float = figure(0.29, "ms per rollout", ROLLOUTS)
    model_ms: float = figure(0.25, "ms per rollout", ROLLOUTS)
    collector_ms: float = figure(0.13, "ms per rollout", ROLLOUTS)
    agent_step_ms: float = figure(0.110, "ms per further tool call", STEPS)
    resources_step_ms: float = figure(0.058, "ms per further tool call", STEPS)
    model_step_ms: float = figure(0.090, "ms per further tool call", STEPS)
    collector_step_ms: float = figure(0.007, "ms per further tool call", STEPS)
    agent_mb_ms: float = figure(4.1, "ms per MB of result", TOKENS)
    resources_mb_ms: float = figure(2.7, "ms per MB of result", TOKENS)
    model_mb_ms: float = figure(2.4, "ms per MB of result", TOKENS)
    collector_mb_ms: float = figure(4.2, "ms per MB of result", TOKENS)
    crowding: float = figure(
        0.03, "more CPU per doubling above 64 in flight", "measured: the same table, 64 to 4,096 in flight"
    )
    mock_endpoint_ms: float = figure(0.05, "ms per rollout", "measured: bench rollouts, endpoint: 0.04 to 0.10")

    # The head server, on one core
    heartbeat_us: float = figure(210, "µs per report of a part", HEAD)
    lookup_us: float = figure(190, "µs per look-up of an unchanged list", HEAD)

    # Memory, files, disk
    collector_kb: float = figure(15.1, "KB per rollout in flight", MEMORY)
    node_kb: float = figure(60.1, "KB per rollout in flight", MEMORY)
    idle_mb: float = figure(161, "MB for three servers and launcher", "measured: bench/RESULTS.md, startup")
    agent_files: float = figure(3, "files per rollout in flight", MEMORY)
    disk_mb_s: float = figure(450, "MB/s", "measured: bench/RESULTS.md: a row of 1 MB with its fsync takes 2.2 ms")

    # Limits and paces of the code
    heartbeat_s: float = figure(HEARTBEAT_S, "s between reports of a part", "set: nemo_gym/calls/joining.py")
    lost_after_s: float = figure(LOST_AFTER_S, "s of silence", "set: nemo_gym/calls/joining.py")
    refresh_s: float = figure(REFRESH_S, "s between look-ups of a caller", "set: nemo_gym/calls/directory.py")
    slots: int = figure(CallLimits.in_flight, "calls of one process at once", "set: max_requests_in_flight")
    rollout_timeout_s: float = figure(1800, "s", "set: rollout_timeout_s")
    retry_pause_s: float = figure(1, "s", "set: retry_pause_s")

    # The cluster, the model and the tasks
    tool_calls: int = figure(3, "per rollout", "assumed: a short agentic task")
    answer_tokens: float = figure(
        750, "output tokens of a model call, mean", "assumed: 15 s a call, a minute a rollout"
    )
    tokens_per_s: float = figure(50, "output tokens/s of one sequence", "assumed: a model of medium size")
    engine_tokens_per_s: float = figure(10_000, "output tokens/s of a node's engine", "assumed: eight GPUs")
    environment_ms: float = figure(5, "ms of CPU per rollout", "assumed: the environment's own tools and verifier")
    token_bytes: float = figure(17, "bytes per output token", "assumed: an id and a log-probability in the result")
    row_kb: float = figure(4, "KB", "assumed: the task and the texts of its answers")
    cores: int = figure(16, "cores per node", "assumed: left by the engine")
    node_gb: float = figure(64, "GB of memory per machine", "assumed: left by the engine")
    link_gbit_s: float = figure(10, "Gbit/s per machine", "assumed: a usual network card")
    open_files: int = figure(65_535, "files per process (ulimit -n)", "assumed: docs/reference/configuration.md")
    node_failures_per_h: float = figure(
        1.6e-4, "failures per node-hour", "assumed: 419 in 54 days on 2,048 nodes (The Llama 3 Herd of Models, 2024)"
    )

    def with_values(self, words: Sequence[str]) -> Constants:
        """Return these figures with some replaced, given as NAME=VALUE. Raise `ValueError` for an invalid one."""
        changed: dict[str, float] = {}
        for word in words:
            name, _, text = word.partition("=")
            if name not in {each.name for each in fields(self)}:
                raise ValueError(f"--set {word}: '{name}' is not a constant. --constants lists them")
            try:
                value = float(text)
            except ValueError:
                raise ValueError(f"--set {word}: '{text}' is not a number. Write NAME=VALUE") from None
            may_be_zero = name.endswith(MAY_BE_ZERO)
            if not 0 <= value < math.inf or not (value or may_be_zero):
                allowed = ", 0 or more" if may_be_zero else " above 0"
                raise ValueError(f"--set {word}: {name} must be a finite number{allowed}")
            is_whole = isinstance(getattr(self, name), int)
            if is_whole and value != int(value):
                raise ValueError(f"--set {word}: {name} must be a whole number")
            changed[name] = int(value) if is_whole else value
        return replace(self, **changed)

    def lines(self) -> list[str]:
        """Return one line per figure: its name, value, unit and source."""
        return [
            f"{each.name:<20} {getattr(self, each.name):>10,g} {each.metadata['unit']:<42} {each.metadata['source']}"
            for each in fields(self)
        ]

    @property
    def answers(self) -> int:
        """The number of model calls of a rollout."""
        return self.tool_calls + 1

    @property
    def result_mb(self) -> float:
        """The mean size of a result."""
        return (self.row_kb * 1e3 + self.answers * self.answer_tokens * self.token_bytes) / 1e6

    def cpu_ms(self, process: str, in_flight: float) -> float:
        """Return the CPU that one rollout takes in a process with so many rollouts in flight."""
        once, step, size = (getattr(self, f"{process}_{end}") for end in ("ms", "step_ms", "mb_ms"))
        # The measured rollouts had one tool call, and results of about 4 KB.
        used = max(0.0, once + (self.tool_calls - 1) * step) + max(0.0, self.result_mb - 0.004) * size
        doublings = max(0, int(max(1.0, in_flight / 64)).bit_length() - 1)
        return float(used * (1 + self.crowding * doublings))


class Setup(NamedTuple):
    """The machines and the rollouts. Each node has an agent, a resources and a model server."""

    nodes: int
    in_flight: int
    """How many rollouts the collectors want to run at once, in all."""
    collectors: int = 1
    replicas: int = 1
    """Processes of each server on a node."""


class Use(NamedTuple):
    """How much of a resource is used."""

    used: float
    available: float
    unit: str

    @property
    def share(self) -> float:
        return self.used / self.available


class Result(NamedTuple):
    """The bound on the throughput of a run, and its use of each resource."""

    setup: Setup
    in_flight: int
    """How many rollouts the collectors run at once, which their open files limit."""
    rollouts_per_s: float
    mean_s: float
    uses: dict[str, Use]
    """By resource, the scarcest first."""
    lost_share: float
    """The share of all work that failures of nodes cost: work done twice, and waiting."""


SPLIT = "start several collections, each with a --shard of the tasks"
MORE_NODES = "+replicas=N, or more nodes"
LAG = "its loop lag is above 100 ms in `ng env top`"
SIGNS = {
    "collector CPU": ("it is at 100 % of a core in `top`, the servers are idle in `ng env top`", SPLIT),
    "collector network": ("the collector's link is full", SPLIT),
    "collector disk": ("the disk of the output is busy", f"write to a local disk, or {SPLIT}"),
    "collector files": ("the collector prints 'N rollouts run at once instead of M'", f"ulimit -n, or {SPLIT}"),
    "collector memory": ("the collector's memory grows in `top`", SPLIT),
    "agent CPU": (LAG, MORE_NODES),
    "resources CPU": (LAG, "`workers: N` in its block, or more nodes"),
    "model server CPU": (LAG, MORE_NODES),
    "node cores": ("all cores are at 100 % in `top`", "more nodes"),
    "agent slots": ("`ng env top` shows queued and refused calls, rollouts end as overloaded", MORE_NODES),
    "agent files": ("503, 'as many connections as its limit on open files allows'", f"ulimit -n, {MORE_NODES}"),
    "node memory": ("the node's memory grows in `top`", "more nodes, or fewer in flight"),
    "endpoint": ("replies become slower, then rollouts end as timeout", "more engines, or fewer in flight"),
    "head CPU": ("`ng_status` is slow and shows healthy machines as lost", "fewer, larger parts"),
}
"""For each resource, how a user notices that it is used up, and what to change."""


def result_of(setup: Setup, constants: Constants) -> Result:
    """Return the highest throughput that no resource forbids.

    A rollout that never waits takes the time of its answers and its CPU. More rollouts in flight than the scarcest
    resource can serve only make every rollout slower (Little's law).
    """
    each = min(math.ceil(setup.in_flight / setup.collectors), most_incoming_calls(constants.open_files))
    in_flight = min(setup.in_flight, each * setup.collectors)
    agents = setup.nodes * setup.replicas
    cpu_s = {
        name: constants.cpu_ms(name, in_flight / agents) / 1e3 + constants.environment_ms / 1e3 * (name == "resources")
        for name in ("agent", "resources", "model")
    }
    collector_s = constants.cpu_ms("collector", in_flight / setup.collectors) / 1e3
    needed = {
        "collector CPU": Use(collector_s, setup.collectors, "cores"),
        "collector network": Use(constants.result_mb, setup.collectors * constants.link_gbit_s * 125, "MB/s"),
        "collector disk": Use(constants.result_mb, setup.collectors * constants.disk_mb_s, "MB/s"),
        "agent CPU": Use(cpu_s["agent"], agents, "cores"),
        "resources CPU": Use(cpu_s["resources"], agents, "cores"),
        "model server CPU": Use(cpu_s["model"], agents, "cores"),
        "node cores": Use(sum(cpu_s.values()), setup.nodes * constants.cores, "cores"),
        "endpoint": Use(
            constants.answers * constants.answer_tokens, setup.nodes * constants.engine_tokens_per_s, "tokens/s"
        ),
    }
    # The agents' slots and the engines limit how many rollouts make progress at once.
    served = min(in_flight, agents * constants.slots)
    alone_s = constants.answers * constants.answer_tokens / constants.tokens_per_s + collector_s + sum(cpu_s.values())
    per_s = min(served / alone_s, *(each.available / each.used for each in needed.values() if each.used))
    uses = {name: use._replace(used=use.used * per_s) for name, use in needed.items()} | _held(
        setup, constants, in_flight
    )
    mean_s = in_flight / per_s
    # Durations vary about as much as an exponential distribution, whose mean age is the mean duration.
    noticed_s = constants.lost_after_s - constants.heartbeat_s / 2 + constants.retry_pause_s
    lost_share = constants.node_failures_per_h / 3600 * (mean_s + noticed_s)
    ordered = dict(sorted(uses.items(), key=lambda item: -item[1].share))
    return Result(setup, in_flight, per_s, mean_s, ordered, lost_share)


def _held(setup: Setup, constants: Constants, in_flight: int) -> dict[str, Use]:
    """Return the uses that do not depend on the throughput."""
    agents = setup.nodes * setup.replicas
    per_agent, per_node, per_collector = (in_flight / each for each in (agents, setup.nodes, setup.collectors))
    row_kb = constants.result_mb * 1e3
    # A call that waits for a slot has only the connection of its caller.
    handled = min(per_agent, constants.slots)
    node_kb = constants.idle_mb * 1e3 * setup.replicas + per_node * (constants.node_kb + 2 * row_kb)
    # On several machines, each node reports its part. Its agents and models look up addresses, as the collectors do.
    parts = setup.nodes if setup.nodes > 1 else 0
    head_us = parts * constants.heartbeat_us / constants.heartbeat_s
    head_us += (2 * setup.replicas * parts + setup.collectors) * constants.lookup_us / constants.refresh_s
    return {
        "collector files": Use(
            setup.in_flight / setup.collectors, most_incoming_calls(constants.open_files), "rollouts of a collector"
        ),
        "collector memory": Use(per_collector * (constants.collector_kb + row_kb) / 1e6, constants.node_gb, "GB"),
        "agent slots": Use(per_agent, constants.slots, "rollouts of an agent"),
        "agent files": Use(
            handled * constants.agent_files + per_agent - handled, constants.open_files, "files of an agent"
        ),
        "node memory": Use(node_kb / 1e6, constants.node_gb, "GB"),
        "head CPU": Use(head_us / 1e6, 1, "cores"),
    }


class Case(NamedTuple):
    """A measured case of `bench rollouts`: everything on two cores, one process of each server."""

    in_flight: int
    delay_s: float
    """The time of each of the two answers."""
    measured_per_s: float

    @property
    def bound_per_s(self) -> float:
        """The computed throughput."""
        small = replace(Constants(), tool_calls=1, row_kb=4.0, token_bytes=0.0)
        cpu_ms = sum(small.cpu_ms(name, self.in_flight) for name in ("agent", "resources", "model", "collector"))
        cpu_s = (cpu_ms + small.mock_endpoint_ms) / 1e3
        return min(2 / cpu_s, self.in_flight / (2 * self.delay_s + cpu_s))

    @property
    def ratio(self) -> float:
        """The computed throughput as a multiple of the measured one."""
        return self.bound_per_s / self.measured_per_s


MEASURED = (
    Case(16, 0, 1415), Case(64, 0, 1656), Case(1024, 0, 1533), Case(4096, 0, 1303), Case(1024, 1, 440),
    Case(4096, 1, 1160),
)  # fmt: skip
"""bench/RESULTS.md, a rollout with one tool call, replicas 1."""


def lines_of(results: Sequence[Result], constants: Constants) -> Iterator[str]:
    """Yield the printed lines: the comparison, a table of the results, the needs of the last one, and the signs."""
    yield "the bound and one measured machine with two cores: rollouts per second"
    yield "in flight  endpoint  measured  computed  ratio"
    for case in MEASURED:
        yield (
            f"{case.in_flight:>9,}  {case.delay_s:>6g} s  {case.measured_per_s:>8,.0f}  {case.bound_per_s:>8,.0f}  "
            f"{case.ratio:>5.2f}"
        )
    yield ""
    yield f"nodes          in flight    rollouts    mean      lost  the scarcest {SHOWN} resources"
    for each in results:
        wanted = each.setup.in_flight
        in_flight = f"{each.in_flight:,}" + (f" of {wanted:,}" if each.in_flight < wanted else "")
        scarce = ", ".join(f"{name} {use.share:.0%}" for name, use in [*each.uses.items()][:SHOWN])
        late = "; rollouts time out" if each.mean_s > constants.rollout_timeout_s else ""
        yield (
            f"{each.setup.nodes:>5,}  {in_flight:>17}  {each.rollouts_per_s:>8,.1f}/s  {each.mean_s:>4,.0f} s  "
            f"{each.lost_share:>8.4%}  {scarce}{late}"
        )
    last = results[-1]
    yield f"\n{last.in_flight:,} rollouts in flight on {last.setup.nodes:,} nodes need"
    for name, use in last.uses.items():
        yield f"  {name:<17} {use.used:>12,.5g} of {use.available:>10,.7g} {use.unit:<24} {use.share:>6.1%}"
    if full := dict.fromkeys(name for each in results for name, use in each.uses.items() if use.share >= FULL):
        yield "\nhow a user notices what is used up, and what to change"
        for name in full:
            seen, change = SIGNS[name]
            yield f"  {name}: {seen}. Change: {change}"


def main(words: Sequence[str]) -> int:
    """Compute the cases that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=_count, nargs="+", default=[1, 10, 100, 1_000])
    parser.add_argument("--in-flight", type=_count, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--collectors", type=_count, default=1, help="each has a machine and a part of the tasks")
    parser.add_argument("--replicas", type=_count, default=1, help="processes of each server on a node")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a constant")
    parser.add_argument("--constants", action="store_true", help="only list the constants and their sources")
    options = parser.parse_args(words)
    try:
        constants = Constants().with_values(options.set)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.constants:
        print("\n".join(constants.lines()))
        return 0
    results = [
        result_of(Setup(nodes, in_flight, options.collectors, options.replicas), constants)
        for nodes in options.nodes
        for in_flight in options.in_flight
        # Fewer rollouts than nodes, or than collectors, show nothing.
        if in_flight >= max(nodes, options.collectors)
    ]
    if not results:
        print("every case has fewer rollouts in flight than nodes or collectors. Raise --in-flight", file=sys.stderr)
        return 2
    for line in lines_of(results, constants):
        print(line)
    cases = [
        {**each._asdict(), "setup": each.setup._asdict(), "uses": {name: use.share for name, use in each.uses.items()}}
        for each in results
    ]
    print(json.dumps({"bench": "scale", "set": options.set, "cases": cases}))
    return 0


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is not a whole number of 1 or more")
    return int(word)

"""Compute by simulation what many machines can do: throughput, latency, and the resource that gives first.

    python -m bench scale [--nodes 1 10 100 1000] [--in-flight 100 1000 10000 100000] [--collectors 1] [--replicas 1]
                          [--set NAME=VALUE …] [--plot FILE.svg] [--constants]

Nothing is started. The figures behind the model are in bench/scale_constants.py: some are measured, some are set by
the code, and some are assumed; `--constants` lists them. The program first compares the model with measured
collections on one machine. Each node has an engine and one process of each server, and a rollout stays on one node.
`in flight` is the number over all nodes. With the defaults it takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.scale_checks import Compared, compare
from bench.scale_constants import Constants
from bench.scale_model import Collection
from bench.scale_result import FULL, SIGNS, Result, simulated
from bench.scale_setup import Setup

HEAD = """\
first, next: the scarcest resources and how much of each is in use. fails: rollouts that end without a score. lost:
work that failures of nodes cost. head: the 99th percentile of a look-up; by mistake: how often a healthy node counts
as lost, because the head server is late. The throughput does not include what such mistakes cost."""
SHOWN = 2
FORMATS = (".svg", ".png", ".pdf")
FAILING = ((10, 1_000), (100, 10_000), (1_000, 10_000))
"""Nodes and rollouts in flight for the simulations in which a node fails."""


def print_comparison(compared: Sequence[Compared]) -> None:
    """Print the model's throughput next to the measured one."""
    print("the model and one measured machine with two cores: rollouts per second\n"
          "in flight  endpoint  measured  computed  ratio")  # fmt: skip
    for each in compared:
        case = each.case
        print(f"{case.in_flight:>9,}  {case.delay_s:>6g} s  {case.measured_per_s:>8,.0f}  "
              f"{each.predicted_per_s:>8,.0f}  {each.ratio:>5.2f}")  # fmt: skip


def print_row(result: Result) -> None:
    """Print a line of the table."""
    in_flight = f"{result.in_flight:,}" + (f" of {result.wanted:,}" if result.in_flight < result.wanted else "")
    scarce = ", ".join(f"{name} {use.share:.0%}" for name, use in list(result.uses.items())[:SHOWN])
    print(
        f"{result.nodes:>5,}  {in_flight:>17}  {result.rollouts_per_s:>8,.1f}/s  {result.mean_s:>6,.0f} s "
        f"{result.p99_s:>6,.0f} s  {result.failed_share:>6.1%}  {result.lost_share:>7.4%}  {scarce:<48}  "
        f"{result.lookup_p99_s * 1e3:>7,.0f} ms" + (f", {result.lost_by_mistake:,}" if result.lost_by_mistake else ""),
        flush=True,
    )


def print_needs(result: Result) -> None:
    """Print the use of every resource, and the number in flight at which it would be used up."""
    print(f"\n{result.in_flight:,} rollouts in flight on {result.nodes:,} nodes need")
    for name, use in result.uses.items():
        # The head server's work depends on the nodes, not on the rollouts.
        of_head = name.startswith("head")
        share = max(use.share, 1e-9)
        amount = (result.wanted if name == "collector files" else result.in_flight) / share
        enough = "grows with the nodes" if of_head else f"enough for {amount:,.0f} in flight"
        print(f"  {name:<17} {use.used:>12,.5g} of {use.available:>10,.7g} {use.unit:<24} {use.share:>6.1%}  {enough}")


def print_signs(results: Sequence[Result]) -> None:
    """Print how a user sees the resources that were used up."""
    full = dict.fromkeys(name for result in results for name, use in result.uses.items() if use.share >= FULL)
    if full:
        print("\nhow a user sees what is used up, and what to change")
        for name in full:
            print(f"  {name}: {SIGNS[name].seen}. Change: {SIGNS[name].change}")


def print_failure(nodes: int, in_flight: int, constants: Constants, options: argparse.Namespace) -> dict[str, Any]:
    """Simulate the failure of a node and print what it costs."""
    setup = Setup(nodes, in_flight, collectors=options.collectors, replicas=options.replicas, fails_at=0.5)
    model = Collection(setup, constants)
    result = simulated(model)
    lost, head = model.lost, model.head
    assert head is not None
    attempts = max(1, lost.attempts)
    print(f"{nodes:>5,}  {result.in_flight:>9,}  {lost.attempts:>5,}  {lost.work_s / attempts:>12,.0f} s  "
          f"{lost.waited_s / attempts:>6.1f} s  {result.lookup_p99_s:>6.2f} s  "
          f"{head.lookups_timed_out:>7,}  {result.failed_share:>6.1%}", flush=True)  # fmt: skip
    return {"nodes": nodes, "in_flight": result.in_flight, "lost_attempts": lost.attempts,
            "work_s": round(lost.work_s, 1), "waited_s": round(lost.waited_s, 1),
            "lookup_p99_s": round(result.lookup_p99_s, 4), "lookups_timed_out": head.lookups_timed_out}  # fmt: skip


def as_json(result: Result) -> dict[str, Any]:
    """Return a result as JSON values."""
    return {**result._asdict(), "uses": {name: round(use.share, 5) for name, use in result.uses.items()}}


def main(words: Sequence[str]) -> int:
    """Simulate the cases that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=_count, nargs="+", default=[1, 10, 100, 1_000])
    parser.add_argument("--in-flight", type=_count, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--collectors", type=_count, default=1, help="each has a machine and a shard of the input")
    parser.add_argument("--replicas", type=_count, default=1, help="processes of each server on a node")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a constant")
    parser.add_argument("--plot", type=Path, help="draw the results; the suffix (.svg, .png) selects the format")
    parser.add_argument("--constants", action="store_true", help="only list the constants and their sources")
    options = parser.parse_args(words)
    try:
        constants = Constants().with_values(options.set)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if problem := _problem_of_plot(options.plot):
        print(problem, file=sys.stderr)
        return 2
    if options.constants:
        print("\n".join(constants.lines()))
        return 0
    cases = [
        Setup(nodes, in_flight, collectors=options.collectors, replicas=options.replicas)
        for nodes in options.nodes
        for in_flight in options.in_flight
        # Fewer rollouts than nodes, or than collectors, show nothing.
        if in_flight >= max(nodes, options.collectors)
    ]
    if not cases:
        print("every case has fewer rollouts in flight than nodes or collectors. Raise --in-flight", file=sys.stderr)
        return 2
    compared = list(compare())
    print_comparison(compared)
    print(f"\n{HEAD}\nnodes          in flight    rollouts    mean    99 %   fails      lost  first, next{'':<37}  "
          "   head, by mistake")  # fmt: skip
    results = []
    for setup in cases:
        results.append(simulated(Collection(setup, constants)))
        print_row(results[-1])
    print_needs(results[-1])
    print_signs(results)
    print("\nwhen one node fails\nnodes  in flight   lost  repeated each  waited  look-up  too late   fails")
    failures = [print_failure(*case, constants, options) for case in FAILING if case[0] in options.nodes]
    print(json.dumps({"bench": "scale", "collectors": options.collectors, "replicas": options.replicas,
                      "set": options.set, "cases": [as_json(each) for each in results], "failures": failures,
                      "compared": [[*each.case, round(each.predicted_per_s, 1)] for each in compared]}))  # fmt: skip
    if options.plot is not None:
        from bench.scale_plot import draw

        draw(results, constants, options.plot)
    return 0


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is not a whole number of 1 or more")
    return int(word)


def _problem_of_plot(path: Path | None) -> str | None:
    """Return why a plot cannot be written, before minutes of simulation."""
    if path is None:
        return None
    if path.suffix not in FORMATS:
        return f"--plot {path}: the suffix must be {' or '.join(FORMATS)}"
    if not path.parent.is_dir():
        return f"--plot {path}: the folder {path.parent} does not exist. Create it first"
    if find_spec("matplotlib") is None:
        return "--plot needs matplotlib: pip install 'nemo-gym[bench]'"
    return None

"""Measure a rollout with one tool call in real processes: rollouts per second, CPU and memory by role.

    python -m bench rollouts [--in-flight 16 64 256 1024 4096] [--delay 0 1] [--replicas 1 2] [--dialect responses]
                             [--runs 3] [--steps 1] [settings …]

Collector → agent → resources server and model server → a mock endpoint that answers at once, or after `--delay`
seconds. The CPU of the endpoint's process and of the collector's start is excluded. Each number of replicas is a row
of the table; they alternate within a case. Settings such as `+key=value` are passed to `ng_run`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from typing import Any

from bench.cost import Case, Measured, measure, middle_of, shown
from bench.job import MODELS

LEAST_FOR_CPU = 500
"""With fewer rollouts, start and idle time dominate the CPU time."""
HEAD = """\
CPU: user and system time of all our processes, per rollout, without the collector's start (the CPU of a collection of
one rollout, at the end of a row). PSS: memory during the run. others: the share of the machine's time used by other
processes than these, the endpoint and this program."""


def ideal(case: Case, steps: int) -> float | None:
    """Return the rollouts per second if only the endpoint took time; None without a delay."""
    return case.in_flight / (case.delay_s * (steps + 1)) if case.delay_s else None


def report(replicas: int, case: Case, runs: Sequence[Measured], steps: int) -> dict[str, Any]:
    """Print a line of the table and return it as JSON values."""
    middle = middle_of(runs)
    best = ideal(case, steps)
    share = f"{middle.rollouts_per_s / best:4.0%} of ideal" if best else " " * 13
    lost = max(run.rollouts - run.scored for run in runs)
    tells_cpu = middle.rollouts >= LEAST_FOR_CPU
    cost = f"{middle.cpu_ms_in_all:5.2f} ms CPU ({shown(middle.cpu_ms, 2)})" if tells_cpu else "too few for CPU"
    print(
        f"replicas {replicas:<3}{case.in_flight:>6} in flight  delay {case.delay_s:g} s  "
        f"{middle.rollouts_per_s:6.0f}/s {share}  {cost}  {middle.pss_mb:.0f} MB ({shown(middle.pss_by_role, 0)})  "
        f"endpoint {middle.endpoint_us:.0f} µs  others {middle.others_share:.0%}  start {middle.start_cpu_s:.2f} s"
        + (f"  LOST {lost}" if lost else ""),
        flush=True,
    )
    return {"replicas": replicas, "in_flight": case.in_flight,
            "delay_s": case.delay_s, "rollouts": middle.rollouts, "rollouts_per_s": round(middle.rollouts_per_s, 1),
            "ideal_per_s": best, "cpu_ms": round(middle.cpu_ms_in_all, 3) if tells_cpu else None,
            "by_role": middle.cpu_ms if tells_cpu else None, "pss_mb": middle.pss_mb,
            "pss_by_role": middle.pss_by_role, "endpoint_us": middle.endpoint_us, "start_cpu_s": middle.start_cpu_s,
            "others_share": middle.others_share, "lost": lost}  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Measure the cases that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench rollouts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--delay", type=float, nargs="+", default=[0.0, 1.0], help="seconds per endpoint answer")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1], help="values of the setting replicas")
    parser.add_argument("--rollouts", type=int, default=0, help="rollouts per case; by default enough for 5 s or more")
    parser.add_argument("--dialect", choices=sorted(MODELS), default="responses")
    parser.add_argument("--steps", type=int, default=1, help="tool calls per rollout")
    parser.add_argument("--runs", type=int, default=3)
    # An option with several values would consume the settings that follow it.
    settings = [word for word in words if word.startswith(("+", "~"))]
    options = parser.parse_args([word for word in words if word not in settings])
    print(HEAD, flush=True)
    cases = []
    for delay_s, in_flight in itertools.product(options.delay, options.in_flight):
        case = Case(in_flight, delay_s, options.rollouts)
        runs: dict[int, list[Measured]] = {replicas: [] for replicas in options.replicas}
        for replicas in options.replicas * options.runs:
            replicated = [f"+replicas={replicas}"] if replicas > 1 else []
            runs[replicas].append(measure(case, options.dialect, options.steps, [*replicated, *settings]))
        cases += [report(replicas, case, measured, options.steps) for replicas, measured in runs.items()]
    print(json.dumps({"bench": "rollouts", "dialect": options.dialect, "steps": options.steps, "settings": settings,
                      "runs": options.runs, "cases": cases}))  # fmt: skip
    return 0

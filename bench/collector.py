"""Measure the collector alone against an agent that answers at once: rollouts per second and CPU per rollout.

    python -m bench collector [--tasks 50000] [--in-flight 64 1024] [--runs 3] [settings …]
    python -m bench collector --memory [--tasks 20000 200000] [--in-flight 256] [settings …]

CPU is that of the command and its child processes. The CPU of a collection of 100 rollouts is subtracted as the start.
Every record is written and flushed. With `--memory`, each number of tasks is a fresh collection with one row per task.
The peak covers all its processes; metrics are not computed. Settings such as `+setting=value` are passed on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.processes import MachineTime, machine_time
from bench.quick_agent import Agent, Collected, collect, quick_agent

ALLOWED_MB = 10.0
TARGET_PER_CORE = 5000.0
FEW = 100
QUESTION = "What is the weather in Paris? " * 20


class Rate(NamedTuple):
    """The speed and cost of one collection."""

    per_s: float
    cpu_us: float
    start_cpu_s: float
    others_share: float

    @property
    def per_core(self) -> float:
        """Return the rollouts per second that one core can run."""
        return 1e6 / self.cpu_us


def rate(agent: Agent, rows: Path, in_flight: int, tasks: int, settings: Sequence[str]) -> Rate:
    """Collect one row `tasks` times and separate the cost of the start from the rest."""
    start = collect(agent, rows, in_flight, FEW, settings)
    before = machine_time()
    whole = collect(agent, rows, in_flight, tasks, settings)
    cpu_us = (whole.cpu_s - start.cpu_s) / (tasks - FEW) * 1e6
    return Rate(tasks / whole.took_s, cpu_us, start.cpu_s, _others_share(before, machine_time(), whole))


def _others_share(before: MachineTime, after: MachineTime, collected: Collected) -> float:
    # This includes the agent's process.
    return max(0.0, after.busy_s - before.busy_s - collected.cpu_s) / max(0.01, after.total_s - before.total_s)


def print_rates(tasks: int, levels: Sequence[int], runs: int, settings: Sequence[str]) -> int:
    """Measure each number in flight and print the table."""
    print(
        "in flight  rollouts/s  CPU µs/rollout  rollouts/s and core   min–max  target  start, CPU s  agent and others"
    )
    cases = []
    with tempfile.TemporaryDirectory() as folder, quick_agent() as agent:
        rows = Path(folder, "rows.jsonl")
        task = {"responses_create_params": {"input": [{"role": "user", "content": QUESTION}]}}
        rows.write_text(json.dumps(task) + "\n")
        for in_flight in levels:
            rates = [rate(agent, rows, in_flight, tasks, settings) for _ in range(runs)]
            cases.append({"in_flight": in_flight, **_printed(in_flight, rates)})
    print(json.dumps({"bench": "collector", "tasks": tasks, "runs": runs, "cases": cases}))
    return 0


def _printed(in_flight: int, measured: Sequence[Rate]) -> dict[str, float]:
    """Print one case as a line of the table and return its numbers."""
    rates = sorted(measured, key=lambda each: each.cpu_us)
    middle = rates[len(rates) // 2]
    per_s = statistics.median(each.per_s for each in rates)
    span = f"{rates[-1].per_core:,.0f}–{rates[0].per_core:,.0f}"
    print(
        f"{in_flight:>9,}  {per_s:>10,.0f}  {middle.cpu_us:>14.0f}  {middle.per_core:>19,.0f}"
        f"  {span:>11}  {TARGET_PER_CORE:>6,.0f}  {middle.start_cpu_s:>12.2f}  {middle.others_share:>16.0%}",
        flush=True,
    )
    return {"rollouts_per_s": round(per_s, 1), "cpu_us": round(middle.cpu_us, 1),
            "per_core": round(middle.per_core, 1), "start_cpu_s": round(middle.start_cpu_s, 3),
            "others_share": round(middle.others_share, 3)}  # fmt: skip


def print_memory(counts: Sequence[int], in_flight: int, settings: Sequence[str]) -> int:
    """Collect each number of tasks. Return 1 if the peak memory grows more than allowed."""
    peaks: list[float] = []
    with tempfile.TemporaryDirectory() as folder, quick_agent() as agent:
        for count in counts:
            rows = Path(folder, "rows.jsonl")
            with rows.open("w") as lines:
                for number in range(count):
                    task = {"responses_create_params": {"input": f"task {number}"}, "number": number}
                    lines.write(json.dumps(task) + "\n")
            ended = collect(agent, rows, in_flight, settings=settings)
            if ended.scored != count:
                raise SystemExit(f"{ended.scored:,} of {count:,} rollouts were scored")
            peaks.append(ended.peak_mb)
            speed = count / ended.took_s
            print(f"{count:>9,} tasks  {ended.peak_mb:7.1f} MB  {ended.took_s:6.1f} s  {speed:7,.0f}/s", flush=True)
    growth = peaks[-1] - peaks[0]
    print(f"growth {growth:.1f} MB of {ALLOWED_MB:g} MB allowed, {in_flight} rollouts at once")
    summary = {"tasks": list(counts), "peak_mb": [round(peak, 1) for peak in peaks], "growth_mb": round(growth, 1)}
    print(json.dumps({"bench": "collector --memory", "in_flight": in_flight, **summary}))
    return 0 if growth < ALLOWED_MB else 1


def main(words: Sequence[str]) -> int:
    """Run the measurement that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench collector", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", action="store_true", help="measure peak memory by the number of tasks")
    parser.add_argument("--tasks", type=int, nargs="+", help="number of tasks (with --memory: one or more numbers)")
    parser.add_argument("--in-flight", type=int, nargs="+", help="concurrent rollouts (with --memory: one number)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each number in flight")
    # An option with several values would consume the settings that follow it.
    settings = [word for word in words if word.startswith(("+", "~"))]
    given = parser.parse_args([word for word in words if word not in settings])
    if given.memory:
        return print_memory(given.tasks or [20_000, 200_000], (given.in_flight or [256])[0], settings)
    tasks, levels = (given.tasks or [50_000])[0], given.in_flight or [64, 1024]
    return print_rates(tasks, levels, given.runs, settings)

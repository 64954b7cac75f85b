"""Measure startup: the time from a command to the first request, the memory of idle servers, the cost of imports.

    python -m bench startup [--runs 7]

Servers: the time from the `ng_run` command until all servers are ready (each has then answered a request), and the
proportional memory of all its processes. Collector: the time from the command to the first row that an agent receives.
Imports: the CPU of a fresh interpreter that imports one module. Cases alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.processes import MachineTime, cpu_s, machine_time, pss_mb, tree_of
from bench.quick_agent import collect, quick_agent
from bench.tree import NG, TREE, product_environment

LAST_LINE = "Ctrl-C stops all"
"""The last line that `ng_run` prints before it waits."""
SETTLING_S = 0.5
READY_TIMEOUT_S = 60.0
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
COLLECTOR = "collector"
IMPORTED = ("nemo_gym", "nemo_gym.servers.agent", "nemo_gym.servers.resources", "nemo_gym.servers.model",
            "nemo_gym.rollouts.collector", "nemo_gym.cli.main", "nemo_gym.cli.rollouts")  # fmt: skip
COLUMNS = "case            s     min–max  target   PSS, MB  target  CPU, s  others"


class Target(NamedTuple):
    """Target values; None without a target."""

    ready_s: float | None = None
    pss_mb: float | None = None


TARGETS = {"3 servers": Target(1.5, 160.0), "10 servers": Target(2.5), COLLECTOR: Target(0.6)}


class Start(NamedTuple):
    """One measured start."""

    ready_s: float
    pss_mb: float | None
    cpu_s: float
    others_share: float
    """The share of the machine's time used by other processes during the start."""


def start_servers(config: Path) -> Start:
    """Measure one start of the servers of a config."""
    with tempfile.TemporaryDirectory() as runtime:
        machine_before = machine_time()
        started_at = time.perf_counter()
        process = subprocess.Popen(
            [*NG, "env", "start", f"+config_paths=[{config}]", "+head_server.port=0"],
            cwd=TREE,
            env=product_environment(runtime),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            ready_s = _time_until_ready(process, started_at)
            machine_after = machine_time()
            pids = tree_of(process.pid)
            own_cpu_s = cpu_s(pids)
            _wait_until_idle(process)
            return Start(ready_s, pss_mb(pids), own_cpu_s, _others_share(machine_before, machine_after, own_cpu_s))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def _time_until_ready(process: subprocess.Popen[str], started_at: float) -> float:
    assert process.stdout is not None
    for line in process.stdout:
        if "servers ready" in line:
            return time.perf_counter() - started_at
        if time.perf_counter() - started_at > READY_TIMEOUT_S:
            break
    raise RuntimeError(f"ng_run was not ready within {READY_TIMEOUT_S} s")


def _wait_until_idle(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if LAST_LINE in line:
            break
    time.sleep(SETTLING_S)


def _others_share(before: MachineTime, after: MachineTime, own_cpu_s: float) -> float:
    total_s = after.total_s - before.total_s
    return max(0.0, after.busy_s - before.busy_s - own_cpu_s) / total_s if total_s else 0.0


def start_collector(folder: Path) -> Start:
    """Measure one collection of a single rollout."""
    rows = folder / "rows.jsonl"
    rows.write_text(json.dumps({"responses_create_params": {"input": "What is the weather in Paris?"}}) + "\n")
    with quick_agent() as agent:
        machine_before = machine_time()
        ended = collect(agent, rows, 1)
    return Start(ended.first_row_s, None, ended.cpu_s, _others_share(machine_before, machine_time(), ended.cpu_s))


def import_cpu_s(module: str | None) -> float:
    """Return the CPU of an interpreter that imports a module, or nothing if None."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"import {module}" if module else "pass"], cwd=TREE, env=product_environment("")
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"{module} cannot be imported")
    return usage.ru_utime + usage.ru_stime


def configs(folder: Path) -> Mapping[str, Path]:
    """Write configs with 1 server (a model), 3 servers (an environment) and 10 (four environments, two models)."""
    environments = ("mcqa", "example_multi_step", "example_session_state_mgmt", "example_single_tool_call")
    paths = [f"resources_servers/{name}/configs/{name}.yaml" for name in environments]
    judge = {"responses_api_models": {"sample_model": {"entrypoint": "app.py"}}}
    cases = {
        "1 server": {"config_paths": [SAMPLE_MODEL]},
        "3 servers": {"config_paths": [paths[0], SAMPLE_MODEL]},
        "10 servers": {"config_paths": [*paths, SAMPLE_MODEL], "judge_model": judge},
    }
    found = {}
    for name, config in cases.items():
        found[name] = folder / f"{name.replace(' ', '_')}.yaml"
        found[name].write_text(json.dumps(config), "utf-8")
    return found


def summarise(starts: Sequence[Start]) -> dict[str, float]:
    """Return medians over the runs, and the range of the time."""
    times = [start.ready_s for start in starts]
    memory = [start.pss_mb for start in starts if start.pss_mb is not None]
    return {
        "ready_s": statistics.median(times),
        "ready_s_min": min(times),
        "ready_s_max": max(times),
        **({"pss_mb": statistics.median(memory)} if memory else {}),
        "cpu_s": statistics.median(start.cpu_s for start in starts),
        "others_share": statistics.median(start.others_share for start in starts),
    }


def print_starts(results: Mapping[str, Mapping[str, float]]) -> None:
    """Print one line per case."""
    print(COLUMNS)
    for name, result in results.items():
        target = TARGETS.get(name, Target())
        span = f"{result['ready_s_min']:.2f}–{result['ready_s_max']:.2f}"
        print(
            f"{name:<11}{result['ready_s']:>6.2f}{span:>12}{_shown(target.ready_s, 1):>8}"
            f"{_shown(result.get('pss_mb'), 0):>10}{_shown(target.pss_mb, 0):>8}"
            f"{result['cpu_s']:>8.2f}{result['others_share']:>8.0%}"
        )


def _shown(number: float | None, digits: int) -> str:
    return "" if number is None else f"{number:.{digits}f}"


def main(words: Sequence[str]) -> int:
    """Measure all cases in turn and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench startup", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="starts of each case")
    runs: int = parser.parse_args(words).runs
    starts: dict[str, list[Start]] = {}
    imports: dict[str | None, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = configs(Path(folder))
        for _ in range(runs):
            for name, config in cases.items():
                starts.setdefault(name, []).append(start_servers(config))
            starts.setdefault(COLLECTOR, []).append(start_collector(Path(folder)))
            for module in (None, *IMPORTED):
                imports.setdefault(module, []).append(import_cpu_s(module))
    results = {name: summarise(each) for name, each in starts.items()}
    # Use the minimum, because other processes can only add to the CPU of an import.
    interpreter, *imported = (min(each) for each in imports.values())
    print_starts(results)
    print(f"\nimport, CPU s (beyond the interpreter's own {interpreter:.2f})")
    for module, each in zip(IMPORTED, imported, strict=True):
        print(f"{module:<30}{each - interpreter:>6.2f}")
    import_costs = {module: round(each - interpreter, 3) for module, each in zip(IMPORTED, imported, strict=True)}
    print(json.dumps({"bench": "startup", "runs": runs, "cases": results, "import_cpu_s": import_costs}))
    return 0

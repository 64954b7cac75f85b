"""How long from the command until every server answers, and how much memory they then take.

    python -m bench startup [--runs 7]

Each case starts `ng_run` as a user would, takes the time until it says that all servers are ready (each has then
answered a request), reads the proportional memory of all its processes, and ends it. Cases alternate.
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
from typing import Any, NamedTuple

from bench.processes import MachineTime, cpu_s, machine_time, pss_mb, tree_of

REPOSITORY = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 60.0
NG_RUN = (sys.executable, "-m", "nemo_gym.cli.main", "env", "start")
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"


WIDTHS = (10, 14, 8, 10, 8, 8, 8)


class Target(NamedTuple):
    """What performance.md asks of a case."""

    ready_s: float
    pss_mb: float


TARGETS = {"3 servers": Target(2.0, 200.0), "10 servers": Target(2.5, 400.0)}


class Start(NamedTuple):
    """One measured start."""

    ready_s: float
    pss_mb: float
    cpu_s: float
    others_share: float
    """The part of the machine's time during the start that other processes took."""


def measure(config: Path) -> Start:
    """Start the servers of a config once."""
    with tempfile.TemporaryDirectory() as runtime:
        environment = {**os.environ, "XDG_RUNTIME_DIR": runtime}
        machine_before = machine_time()
        started_at = time.perf_counter()
        process = subprocess.Popen(
            [*NG_RUN, f"+config_paths=[{config}]", "+head_server.port=0"],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            ready_s = _time_until_ready(process, started_at)
            machine_after = machine_time()
            pids = tree_of(process.pid)
            own_cpu_s = cpu_s(pids)
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


def _others_share(before: MachineTime, after: MachineTime, own_cpu_s: float) -> float:
    total_s = after.total_s - before.total_s
    return max(0.0, after.busy_s - before.busy_s - own_cpu_s) / total_s if total_s else 0.0


def configs(folder: Path) -> Mapping[str, Path]:
    """A config of one environment (3 servers), and one of three environments and one more agent (10 servers)."""
    environments = ("mcqa", "example_multi_step", "example_session_state_mgmt", "example_single_tool_call")
    paths = [f"resources_servers/{name}/configs/{name}.yaml" for name in environments]
    small, large = folder / "three.yaml", folder / "ten.yaml"
    small.write_text(json.dumps({"config_paths": [paths[0], SAMPLE_MODEL]}), "utf-8")
    judge = {"responses_api_models": {"sample_model": {"entrypoint": "app.py"}}}
    large.write_text(json.dumps({"config_paths": [*paths, SAMPLE_MODEL], "judge_model": judge}), "utf-8")
    return {"3 servers": small, "10 servers": large}


def summarise(starts: Sequence[Start]) -> dict[str, float]:
    """Medians over the runs, and the spread of the time."""
    times = [start.ready_s for start in starts]
    return {
        "ready_s": statistics.median(times),
        "ready_s_min": min(times),
        "ready_s_max": max(times),
        "pss_mb": statistics.median(start.pss_mb for start in starts),
        "cpu_s": statistics.median(start.cpu_s for start in starts),
        "others_share": statistics.median(start.others_share for start in starts),
    }


def main(words: Sequence[str]) -> int:
    """Measure all cases in turn and print them."""
    parser = argparse.ArgumentParser(prog="python -m bench startup", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7, help="how often each case is started")
    runs: int = parser.parse_args(words).runs
    starts: dict[str, list[Start]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = configs(Path(folder))
        for _ in range(runs):
            for name, config in cases.items():
                starts.setdefault(name, []).append(measure(config))
    results: dict[str, Any] = {name: summarise(each) for name, each in starts.items()}
    headings = ("ready, s", "min–max", "target", "PSS, MB", "target", "CPU, s", "others")
    print(f"{'case':<12}" + "".join(f"{heading:>{WIDTHS[at]}}" for at, heading in enumerate(headings)))
    for name, result in results.items():
        span = f"{result['ready_s_min']:.2f}–{result['ready_s_max']:.2f}"
        target = TARGETS[name]
        print(
            f"{name:<12}{result['ready_s']:>10.2f}{span:>14}{target.ready_s:>8.1f}{result['pss_mb']:>10.0f}"
            f"{target.pss_mb:>8.0f}{result['cpu_s']:>8.2f}{result['others_share']:>8.0%}"
        )
    print(json.dumps({"bench": "startup", "runs": runs, "cases": results}))
    return 0

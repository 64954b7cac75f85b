"""What a rollout with one tool call costs through real processes: rollouts per second, CPU and memory by role.

    python -m bench rollouts [--in-flight 64 1024] [--delay 0] [--dialect responses] [--runs 3] [--steps 1]

Collector → agent → resources server and model server → a mock endpoint that answers at once, or after `--delay`
seconds. The endpoint runs in a process of its own, and is left out of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.processes import cpu_s, machine_time, pss_mb, tree_of

REPOSITORY = Path(__file__).resolve().parent.parent
NG = (sys.executable, "-m", "nemo_gym.cli.main")
ENVIRONMENT = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
MODELS = {
    "responses": "responses_api_models/openai_model/configs/openai_model.yaml",
    "chat": "responses_api_models/vllm_model/configs/vllm_model.yaml",
}
AGENT = "example_single_tool_call_simple_agent"
ROLES = {"resources_servers": "resources", "responses_api_agents": "agent", "responses_api_models": "model"}
READY_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 600.0
LEAST_ROLLOUTS = 2000


class Case(NamedTuple):
    """One setting."""

    in_flight: int
    delay_s: float
    rollouts: int


class Measured(NamedTuple):
    """One run of a case."""

    rollouts_per_s: float
    cpu_ms: dict[str, float]
    """CPU per rollout, by role."""
    pss_mb: float
    """Of all our processes at the end of the run."""
    others_share: float
    scored: int

    @property
    def cpu_ms_in_all(self) -> float:
        return sum(self.cpu_ms.values())


@contextmanager
def endpoint(delay_s: float, steps: int) -> Iterator[str]:
    """A mock endpoint's address."""
    words = ["--delay", str(delay_s), "--steps", str(steps)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.endpoint", *words],
        cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.stdin.close()


class Servers(NamedTuple):
    """The servers of a run."""

    process: subprocess.Popen[str]
    head: str
    pids: dict[str, list[int]]
    """By role."""


@contextmanager
def servers(url: str, dialect: str, runtime: str, words: Sequence[str] = ()) -> Iterator[Servers]:
    """`ng_run` with the one-tool environment; ends with the block."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": runtime}
    settings = [f"+config_paths=[{ENVIRONMENT},{MODELS[dialect]}]", f"+policy_base_url={url}", "+policy_api_key=none",
                "+policy_model_name=mock", "+head_server.port=0", "+model_endpoint_readiness_timeout_seconds=20",
                *words]  # fmt: skip
    process = subprocess.Popen(
        [*NG, "env", "start", *settings], cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        head = _head_of(process)
        with urllib.request.urlopen(f"{head}/server_instances") as answer:
            instances = json.loads(answer.read())
        pids: dict[str, list[int]] = {"launcher": [process.pid]}
        for instance in instances:
            pids.setdefault(ROLES[instance["server_type"]], []).append(instance["pid"])
        yield Servers(process, head, pids)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _head_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if found := re.search(r"head server: (\S+)", line):
            return found[1]
        if not line:
            break
    raise SystemExit("the servers did not come up")


def measure(case: Case, dialect: str, steps: int, words: Sequence[str] = ()) -> Measured:
    """Run one case once."""
    with tempfile.TemporaryDirectory() as folder, endpoint(case.delay_s, steps) as url:
        with servers(url, dialect, folder, words) as up:
            _collect(up, folder, 200, 64)  # what is only done once is done now
            before = {role: cpu_s(pids) for role, pids in up.pids.items()}
            machine_before, began_at = machine_time(), time.perf_counter()
            collector_s, scored = _collect(up, folder, case.rollouts, case.in_flight)
            took_s, machine_after = time.perf_counter() - began_at, machine_time()
            spent = {role: cpu_s(pids) - before[role] for role, pids in up.pids.items()}
            spent["collector"] = collector_s.cpu_s
            memory = pss_mb(tree_of(up.process.pid))
        busy_s = machine_after.busy_s - machine_before.busy_s
        share = max(0.0, busy_s - sum(spent.values())) / max(0.01, machine_after.total_s - machine_before.total_s)
        return Measured(
            rollouts_per_s=case.rollouts / (took_s - collector_s.start_s),
            cpu_ms={role: seconds * 1000 / case.rollouts for role, seconds in spent.items()},
            pss_mb=memory,
            others_share=share,
            scored=scored,
        )


class _Collected(NamedTuple):
    cpu_s: float
    start_s: float
    """From the command to its first request, imports included."""


def _collect(up: Servers, folder: str, rollouts: int, in_flight: int) -> tuple[_Collected, int]:
    rows = Path(folder, "rows.jsonl")
    task = {"responses_create_params": {"input": [{"role": "user", "content": "What is the weather in Paris? " * 20}]},
            "agent_ref": {"type": "responses_api_agents", "name": AGENT}}  # fmt: skip
    rows.write_text(json.dumps(task) + "\n")
    output = Path(folder, "out.jsonl")
    host, port = up.head.removeprefix("http://").split(":")
    words = [f"+input_jsonl_fpath={rows}", f"+output_jsonl_fpath={output}", f"+num_repeats={rollouts}",
             f"+num_samples_in_parallel={in_flight}", f"+head_server.host={host}", f"+head_server.port={port}",
             "+overwrite=true", "+disable_aggregation=true"]  # fmt: skip
    began_at = time.perf_counter()
    process = subprocess.Popen(
        [*NG, "eval", "run", "--no-serve", *words], cwd=REPOSITORY,
        env={**os.environ, "XDG_RUNTIME_DIR": folder}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    first_s = 0.0
    while process.poll() is None and time.perf_counter() - began_at < RUN_TIMEOUT_S:
        if not first_s and output.exists() and output.stat().st_size:
            first_s = time.perf_counter() - began_at
            break
        time.sleep(0.005)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the collection failed (status {status})")
    with output.open("rb") as lines:
        scored = sum(1 for _ in lines)
    return _Collected(usage.ru_utime + usage.ru_stime, first_s), scored


def ideal(case: Case, steps: int) -> float | None:
    """Rollouts per second if nothing but the endpoint took time; None without a delay."""
    return case.in_flight / (case.delay_s * (steps + 1)) if case.delay_s else None


def report(case: Case, runs: list[Measured], steps: int) -> dict[str, Any]:
    """Print a line of the table, and give the same for programs."""
    middle = sorted(runs, key=lambda run: run.cpu_ms_in_all)[len(runs) // 2]
    best = ideal(case, steps)
    speed = statistics.median(run.rollouts_per_s for run in runs)
    roles = " ".join(f"{role} {ms:.2f}" for role, ms in middle.cpu_ms.items())
    share = f" {speed / best:5.0%} of ideal" if best else ""
    lost = case.rollouts - min(run.scored for run in runs)
    print(
        f"{case.in_flight:>6} in flight, delay {case.delay_s:g} s: {speed:7.0f}/s{share}  "
        f"{middle.cpu_ms_in_all:.2f} ms CPU ({roles})  {middle.pss_mb:.0f} MB  others {middle.others_share:.0%}"
        + (f"  LOST {lost}" if lost else ""),
        flush=True,
    )
    return {"in_flight": case.in_flight, "delay_s": case.delay_s, "rollouts_per_s": round(speed, 1),
            "cpu_ms": round(middle.cpu_ms_in_all, 3), "by_role": middle.cpu_ms, "pss_mb": middle.pss_mb,
            "others_share": middle.others_share, "lost": lost}  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Measure the cases that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that the endpoint takes")
    parser.add_argument("--rollouts", type=int, default=0, help="how many; by default enough for several seconds")
    parser.add_argument("--dialect", choices=sorted(MODELS), default="responses")
    parser.add_argument("--steps", type=int, default=1, help="tool calls in each rollout")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("settings", nargs="*", help="overrides for ng_run, such as +placement=together")
    options = parser.parse_args(words)
    told = []
    for in_flight in options.in_flight:
        rollouts = options.rollouts or max(LEAST_ROLLOUTS, in_flight * (3 if options.delay else 4))
        case = Case(in_flight, options.delay, rollouts)
        runs = [measure(case, options.dialect, options.steps, options.settings) for _ in range(options.runs)]
        told.append(report(case, runs, options.steps))
    print(json.dumps(told))
    return 0

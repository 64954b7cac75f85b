"""The measured job, with real processes: a mock endpoint, `ng_run` with an environment, and collections."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from bench.processes import by_role
from bench.tree import HERE, NG, TREE, product_environment

MODELS = {
    "responses": "responses_api_models/openai_model/configs/openai_model.yaml",
    "chat": "responses_api_models/vllm_model/configs/vllm_model.yaml",
}
ROLES = {"resources_servers": "resources", "responses_api_agents": "agent", "responses_api_models": "model"}
LAUNCHER = "launcher"
"""The role of processes that serve no rollouts: the command, its fork server and the head server."""
READY_TIMEOUT_S = 60.0
TOKEN_ENV_VAR = "NEMO_GYM_RUN_TOKEN"
RUN_TIMEOUT_S = 600.0
WATCH_AFTER_S = 2.5
QUESTION = "What is the weather in Paris? "


class Environment(NamedTuple):
    """The environment and agent whose rollouts are collected."""

    config: str
    """Path relative to `folder`."""
    agent: str
    folder: Path | None = None
    """The working folder of the commands; by default the measured tree."""
    context_bytes: int = 600
    """Length of the text, image or sound in a row's input."""
    media: Literal["image", "audio"] | None = None
    """What a row's input contains in place of the text, as base64."""


ONE_TOOL = Environment(
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "example_single_tool_call_simple_agent",
)


@contextmanager
def endpoint(delay_s: float, steps: int, words: Sequence[str] = ()) -> Iterator[str]:
    """Run `bench.endpoint` with further arguments and yield its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.endpoint", "--delay", str(delay_s), "--steps", str(steps), *words],
        cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
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
    """Every process of the run, by role."""
    environment: Environment = ONE_TOOL


@contextmanager
def servers(
    url: str, dialect: str, runtime: str, words: Sequence[str] = (), *, environment: Environment = ONE_TOOL
) -> Iterator[Servers]:
    """Run `ng_run` with an environment and the model endpoint at `url` for the duration of the block."""
    settings = [*settings_of(url, dialect, environment), "+head_server.port=0", *words]
    process = subprocess.Popen(
        [*NG, "env", "start", *settings], cwd=environment.folder or TREE, env=product_environment(runtime),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        head = _head_of(process)
        yield Servers(process, head, _pids(process.pid, head), environment)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def settings_of(url: str, dialect: str, environment: Environment) -> list[str]:
    """Return the settings of a run with an environment and the model endpoint at `url`."""
    return [f"+config_paths=[{environment.config},{TREE / MODELS[dialect]}]", f"+policy_base_url={url}",
            "+policy_api_key=none", "+policy_model_name=mock",
            "+model_endpoint_readiness_timeout_seconds=20"]  # fmt: skip


def _head_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    printed = []
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if found := re.search(r"head server: (\S+)", line):
            return found[1]
        if not line:
            break
        printed.append(line)
    raise SystemExit(f"the servers did not start:\n{''.join(printed[-20:])}")


def _pids(launcher: int, head: str) -> dict[str, list[int]]:
    # A run on several machines requires its token.
    headers = {"x-nemo-gym-run-token": os.environ.get(TOKEN_ENV_VAR, "")}
    with urllib.request.urlopen(
        urllib.request.Request(f"{head}/server_instances", headers=headers), timeout=30
    ) as answer:
        instances = json.loads(answer.read())
    roles: dict[int, str] = {}
    for instance in instances:
        role = ROLES[instance["server_type"]]
        # Older commits report a single pid per server.
        for pid in instance.get("pids") or [instance["pid"]]:
            roles[pid] = role
    return by_role(launcher, roles, LAUNCHER)


class Collected(NamedTuple):
    """The cost of a finished collection."""

    cpu_s: float
    """CPU of the collector and its finished children."""
    start_s: float
    """From the command to its first row on disk, including imports."""
    took_s: float
    row_bytes: float
    """The mean length of a row of the results."""


def start_collection(up: Servers, folder: str, rollouts: int, in_flight: int) -> subprocess.Popen[bytes]:
    """Start collecting into the folder's `out.jsonl`; the command's output goes to `collector.log`."""
    rows, environment = Path(folder, "rows.jsonl"), up.environment
    task = {"responses_create_params": {"input": [{"role": "user", "content": _content(environment)}]},
            "agent_ref": {"type": "responses_api_agents", "name": environment.agent}}  # fmt: skip
    rows.write_text(json.dumps(task) + "\n")
    output = Path(folder, "out.jsonl")
    output.unlink(missing_ok=True)
    host, port = up.head.removeprefix("http://").split(":")
    words = [f"+input_jsonl_fpath={rows}", f"+output_jsonl_fpath={output}", f"+num_repeats={rollouts}",
             f"+num_samples_in_parallel={in_flight}", f"+head_server.host={host}", f"+head_server.port={port}",
             "+overwrite=true", "+disable_aggregation=true"]  # fmt: skip
    with Path(folder, "collector.log").open("wb") as log:
        return subprocess.Popen(
            [*NG, "eval", "run", "--no-serve", *words], cwd=environment.folder or TREE,
            env=product_environment(folder), stdout=log, stderr=log,
        )  # fmt: skip


def _content(environment: Environment) -> str | list[dict[str, Any]]:
    size = environment.context_bytes
    if environment.media is None:
        return (QUESTION * (size // len(QUESTION) + 1))[:size]
    data = b64encode(Random(0).randbytes(size * 3 // 4)).decode()
    parts = {
        "image": {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        "audio": {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    }
    return [{"type": "input_text", "text": QUESTION}, parts[environment.media]]


def collect(
    up: Servers, folder: str, rollouts: int, in_flight: int, watch: Callable[[int], None] | None = None
) -> tuple[Collected, int]:
    """Run a collection and return its cost and the number of scored rollouts.

    `watch` is called with the collector's pid 2.5 s after the first row, if the collection lasts that long.
    """
    output = Path(folder, "out.jsonl")
    began_at = time.perf_counter()
    process = start_collection(up, folder, rollouts, in_flight)
    first_s = 0.0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        now_s = time.perf_counter() - began_at
        if not first_s and output.exists() and output.stat().st_size:
            first_s = now_s
        if pid:
            break
        if watch and first_s and now_s > first_s + WATCH_AFTER_S:
            watch(process.pid)
            watch = None
        if now_s > RUN_TIMEOUT_S:
            process.kill()
        time.sleep(0.02 if first_s else 0.005)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        log = Path(folder, "collector.log").read_text(errors="replace")
        raise SystemExit(f"the collection failed (exit code {process.returncode}):\n{log[-2000:]}")
    with output.open("rb") as lines:
        scored = sum(1 for _ in lines)
    row_bytes = output.stat().st_size / max(1, scored)
    return Collected(usage.ru_utime + usage.ru_stime, first_s, now_s, row_bytes), scored

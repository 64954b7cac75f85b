"""Run a long collection with faults: each rollout must be scored or failed exactly once, without memory growth.

    python -m bench soak [--minutes 10] [--rollouts 50000] [--in-flight 256] [--kill-every 20]

Each fault of the model endpoint and of the environment affects one call in a hundred, and one of the servers is killed
every `--kill-every` seconds. The endpoint's delay is chosen so that the collection takes the requested time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from bench.endpoint import Connection
from bench.processes import pss_mb, tree_of

REPOSITORY = Path(__file__).resolve().parent.parent
NG = (sys.executable, "-m", "nemo_gym.cli.main")
MODEL = REPOSITORY / "responses_api_models/openai_model/configs/openai_model.yaml"
ROLES = {"resources_servers": "resources", "responses_api_agents": "agent", "responses_api_models": "model"}
SHARE = 0.01
CALLS = 2
"""Endpoint calls per rollout."""
TIMEOUT_S = 30.0
HANG_S = 60.0
READY_TIMEOUT_S = 120.0
FAULTS_TAKE = 1.5
"""The factor by which retries and hanging calls prolong a collection."""
PATIENCE_S = 240.0
"""Extra seconds before the collection counts as stuck."""
MARKS = (0.2, 0.6, 1.0)
ALLOWED_GROWTH = 1.2
ALLOWED_GROWTH_MB = 15.0

ENVIRONMENT = f'''
import asyncio
import random
import time

from nemo_gym import BaseSeedSessionRequest, BaseVerifyRequest, SessionState, SimpleResourcesServer, ToolError, tool

SHARE, HANG_S = {SHARE}, {HANG_S}


class Calls(SessionState):
    count: int = 0


def struck() -> bool:
    return random.random() < SHARE


class Soak(SimpleResourcesServer):
    async def seed_session(self, body: BaseSeedSessionRequest, calls: Calls) -> None:
        if struck():
            raise RuntimeError("seed_session failed")

    @tool
    async def get_weather(self, city: str, calls: Calls) -> str:
        """Return the weather in a city."""
        calls.count += 1
        if struck():
            raise RuntimeError("the tool failed")
        if struck():
            await asyncio.sleep(HANG_S)
        if struck():
            await asyncio.to_thread(time.sleep, 1.0)
        if struck():
            raise ToolError("the weather is not available")
        return f"It is cold in {{city}}."

    async def verify(self, body: BaseVerifyRequest, calls: Calls) -> float:
        if struck():
            raise RuntimeError("verify failed")
        if struck():
            await asyncio.sleep(HANG_S)
        if struck():
            return float("nan")
        return float(calls.count == 1)
'''
CONFIG = {
    "soak": {"resources_servers": {"soak": {"entrypoint": "app.py"}}},
    "soak_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "soak"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
}


def error_response(status: int, *headers: bytes) -> bytes:
    """Return a complete HTTP error response."""
    head = b"".join(b"%s\r\n" % header for header in (b"HTTP/1.1 %d Fault" % status, *headers, b"content-length: 2"))
    return head + b"\r\n{}"


class FaultyConnection(Connection):
    """A connection that answers one request in a hundred with each of the faults."""

    def _write(self, answer: bytes) -> None:
        faults: dict[int, Callable[[], None]] = {
            0: lambda: self.transport.write(error_response(429, b"retry-after: 0.2")),
            1: lambda: self.transport.write(error_response(503)),
            2: lambda: self.transport.write(error_response(500)),
            3: self.transport.abort,
            4: partial(self._write_half, answer),
            5: partial(self.transport.write, b"SSH-2.0-surprise\r\n\r\n"),
            6: lambda: None,
        }
        if self.transport.is_closing():
            return
        faults.get(int(random.random() / SHARE), partial(self.transport.write, answer))()

    def _write_half(self, answer: bytes) -> None:
        self.transport.write(answer[: len(answer) // 2])
        self.transport.close()


async def serve_endpoint(delay_s: float) -> None:
    """Serve the endpoint until standard input is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(FaultyConnection, delay_s, 1), "127.0.0.1", 0, backlog=20_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def endpoint(delay_s: float) -> Iterator[str]:
    """Run the faulty endpoint and yield its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench", "soak", "--serve", str(delay_s)],
        cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.communicate()


@contextmanager
def servers(folder: Path, url: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run `ng_run` with the faulty environment; yield its process and its head server's address."""
    (folder / "resources_servers/soak").mkdir(parents=True)
    (folder / "resources_servers/soak/app.py").write_text(ENVIRONMENT)
    (folder / "soak.yaml").write_text(json.dumps(CONFIG))
    words = [f"+config_paths=[soak.yaml,{MODEL}]", f"+policy_base_url={url}", "+policy_api_key=none",
             "+policy_model_name=mock", "+head_server.port=0", "+restart_limit=100000"]  # fmt: skip
    log = folder / "ng_run.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*NG, "env", "start", *words], cwd=folder, env=environment(folder), stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (found := re.search(r"head server: (\S+)", log.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the servers did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield process, found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def environment(folder: Path) -> dict[str, str]:
    """Return environment variables that hide this run from others."""
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder)}


def collector(folder: Path, head: str, rollouts: int, in_flight: int) -> subprocess.Popen[bytes]:
    """Start the collection."""
    task = {"responses_create_params": {"input": [{"role": "user", "content": "What is the weather in Paris?"}]}}
    (folder / "rows.jsonl").write_text(json.dumps(task) + "\n")
    host, port = head.removeprefix("http://").split(":")
    words = ["+input_jsonl_fpath=rows.jsonl", "+agent_name=soak_agent", "+output_jsonl_fpath=out.jsonl",
             f"+num_repeats={rollouts}", f"+num_samples_in_parallel={in_flight}", f"+head_server.host={host}",
             f"+head_server.port={port}", f"+rollout_timeout_s={TIMEOUT_S}", "+disable_aggregation=true"]  # fmt: skip
    with (folder / "collector.log").open("wb") as output:
        return subprocess.Popen(
            [*NG, "eval", "run", "--no-serve", *words], cwd=folder, env=environment(folder),
            stdout=output, stderr=output,
        )  # fmt: skip


def instances(head: str) -> list[dict[str, Any]]:
    """Return the servers that the head server lists."""
    with urllib.request.urlopen(f"{head}/server_instances", timeout=30.0) as answer:
        return list(json.loads(answer.read()))


def memory(launcher: int, head: str, collecting: int) -> dict[str, float]:
    """Return the proportional memory by role, in megabytes (1e6 bytes)."""
    roles = {each["pid"]: ROLES[each["server_type"]] for each in instances(head)}
    found: dict[str, float] = {}
    for pid in (*tree_of(launcher), collecting):
        role = "collector" if pid == collecting else roles.get(pid, "launcher and head")
        # A server may just have been killed.
        with suppress(OSError):
            found[role] = found.get(role, 0.0) + pss_mb([pid])
    return found


class Watched(NamedTuple):
    """Observations during the collection."""

    memory: list[dict[str, float]]
    kills: int


def watch(launcher: int, head: str, collecting: subprocess.Popen[bytes], folder: Path, options: Any) -> Watched:
    """Kill servers and record the memory at the marks until the collection ends."""
    began_at = time.monotonic()
    marks, seen, kills = list(MARKS), [], 0
    tiers = itertools.cycle(ROLES)
    while collecting.poll() is None:
        elapsed_s = time.monotonic() - began_at
        if elapsed_s > options.minutes * 60 + PATIENCE_S:
            collecting.kill()
            raise SystemExit(f"the collection did not finish within {elapsed_s:.0f} s; {outcomes(folder)}")
        if marks and done(folder) >= min(marks[0], 0.97):
            seen.append(memory(launcher, head, collecting.pid))
            print(f"{marks.pop(0):4.0%}  {elapsed_s:5.0f} s  {shown(seen[-1])}", flush=True)
        if elapsed_s > options.kill_every * (kills + 1):
            tier = next(tiers)
            for each in instances(head):
                if each["server_type"] == tier:
                    with suppress(ProcessLookupError):
                        os.kill(each["pid"], signal.SIGKILL)
            kills += 1
        time.sleep(0.5)
    return Watched(seen, kills)


def outcomes(folder: Path) -> dict[str, Any]:
    """Return the outcomes in the run's record."""
    try:
        return dict(json.loads((folder / "out_run.json").read_text())["outcomes"])
    except FileNotFoundError:
        return {"planned": 1, "scored": 0, "failed": {}}


def done(folder: Path) -> float:
    """Return the share of finished rollouts."""
    now = outcomes(folder)
    return float((now["scored"] + sum(now["failed"].values())) / now["planned"])


def shown(memory_mb: dict[str, float]) -> str:
    """Format the memory by role on one line."""
    return "  ".join(f"{role} {size:.0f} MB" for role, size in sorted(memory_mb.items()))


def keys_in(path: Path) -> Counter[tuple[int, int]]:
    """Count the lines of a file for each rollout."""
    with path.open("rb") as lines:
        rows = map(orjson.loads, lines)
        return Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows)


def problems(folder: Path, watched: Watched) -> Iterable[str]:
    """Print a summary and yield every violated promise."""
    now = outcomes(folder)
    planned, scored = keys_in(folder / "out_materialized_inputs.jsonl"), keys_in(folder / "out.jsonl")
    failed = keys_in(folder / "out_failures.jsonl").keys() - scored.keys()
    print(f"{len(planned)} planned = {len(scored)} scored + {len(failed)} failed; attempts that were repeated: "
          f"{now['repeated_attempts']}; by cause: {now['failed']}; servers killed: {watched.kills}")  # fmt: skip
    if len(planned) != len(scored) + len(failed):
        yield f"planned and finished rollouts differ: {len(planned)} and {len(scored) + len(failed)}"
    if now["scored"] != len(scored) or sum(now["failed"].values()) != len(failed) or now["unresolved"]:
        yield f"the record differs from the files: {now}"
    if twice := [key for key, count in scored.items() if count > 1]:
        yield f"scored more than once: {twice[:5]}"
    with (folder / "out.jsonl").open("rb") as lines:
        rewards = Counter(orjson.loads(line)["reward"] for line in lines)
    if set(rewards) != {1.0}:
        yield f"a scored rollout has another number of tool calls than one: {rewards}"
    first, last = watched.memory[0], watched.memory[-1]
    for role in first:
        if last.get(role, 0.0) > first[role] * ALLOWED_GROWTH + ALLOWED_GROWTH_MB:
            yield f"{role} grew from {first[role]:.0f} to {last[role]:.0f} MB"


def main(words: Sequence[str]) -> int:
    """Run the collection. Return 1 if a promise is violated."""
    parser = argparse.ArgumentParser(
        prog="python -m bench soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rollouts", type=int, help="by default 5000 per minute")
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--kill-every", type=float, default=20.0, help="seconds")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.serve is not None:
        asyncio.run(serve_endpoint(options.serve))
        return 0
    rollouts = options.rollouts or int(options.minutes * 5000)
    delay_s = options.in_flight * options.minutes * 60 / rollouts / CALLS / FAULTS_TAKE
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        launcher, head = stack.enter_context(servers(folder, stack.enter_context(endpoint(delay_s))))
        collecting = collector(folder, head, rollouts, options.in_flight)
        try:
            watched = watch(launcher.pid, head, collecting, folder, options)
        finally:
            collecting.kill()
        if collecting.returncode or not watched.memory:
            print((folder / "collector.log").read_text()[-2000:], file=sys.stderr)
            return 1
        found = list(problems(folder, watched))
    for problem in found:
        print(f"FAILED: {problem}")
    if not found:
        print("each scored once; the memory of every process is flat")
    return 1 if found else 0

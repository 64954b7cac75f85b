"""Measure what a run on several machines adds: the head server's work, the writer, and the CPU of a rollout.

    python -m bench cluster [--parts 1000] [--instances 10] [--runs 3] [--in-flight 64] [--ray] [--skip-rollouts]

Head server: CPU per request of one process while this many parts with this many servers each join, report that they
are alive, and look up addresses (the whole list, and an unchanged one). Writer: the speed at which a collector writes
results, with fsync every second, to a temporary folder. Rollouts: CPU per rollout with one tool call, for servers of
one `ng_run` (local), for the same servers as parts that have joined over the network (parts), and with `--ray` on a
Ray cluster of its own; they alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.cost import Case, Measured, measure, middle_of, shown
from bench.job import LAUNCHER, ONE_TOOL, TOKEN_ENV_VAR, Environment, Servers, servers, settings_of
from bench.processes import cpu_s, tree_of
from bench.tree import NG, TREE, product_environment
from nemo_gym.calls.directory import ADDRESSES_PATH
from nemo_gym.calls.joining import HEARTBEAT_S, MEMBERS_PATH, PartReport
from nemo_gym.config.process import ServerInstance
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import Reply
from nemo_gym.jsonl import Appender
from nemo_gym.schemas.rollout import RUN_TOKEN_HEADER

READY = "servers ready"
START_TIMEOUT_S = 60.0
AT_ONCE = 64
ROW_BYTES = (2_000, 50_000, 1_000_000)
WRITTEN_BYTES = 1_000_000_000
MOST_RATIO = 1.15
"""The target for the CPU of a rollout, as a multiple of a local one."""
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"


class Cost(NamedTuple):
    """The requests of one kind."""

    kind: str
    requests: int
    cpu_us: float
    """CPU of the head server per request."""

    @property
    def per_core_s(self) -> float:
        """Requests per second that would use one core."""
        # The clock of processes has ticks of 10 ms.
        return 1e6 / max(1.0, self.cpu_us)


@contextmanager
def started(words: Sequence[str], folder: str, ready: str = READY) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `ng_run` until it prints `ready`, and yield it with its output so far."""
    process = subprocess.Popen(
        [*NG, "env", "start", *words], cwd=TREE, env=product_environment(folder), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        printed: list[str] = []
        alarm = threading.Timer(START_TIMEOUT_S, process.kill)
        alarm.start()
        for line in process.stdout:
            printed.append(line)
            if ready in line:
                break
        else:
            raise SystemExit(f"the servers did not start:\n{''.join(printed[-20:])}")
        alarm.cancel()
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield process, "".join(printed)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def reports(run_id: str, parts: int, instances: int, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the id and the report of each part."""
    for part in range(parts):
        host = f"10.{part >> 16}.{part >> 8 & 255}.{part & 255}"
        listed = [
            ServerInstance(
                process_name=name, server_type="resources_servers", name=name, dir_path="/", entrypoint="app.py",
                host=host, port=port, url=f"http://{host}:{port}", pid=1, config_path=name, start_time=time.time(),
                machine=f"node{part}", member=f"{part:08x}",
            )
            for port in range(10_001, 10_001 + instances)
        ]  # fmt: skip
        yield (
            f"{part:08x}",
            PartReport(run_id=run_id, machine=f"node{part}", instances=listed).model_dump_json().encode(),
        )


async def all_of(calls: Sequence[Callable[[], Awaitable[Reply]]], ok: Sequence[int]) -> None:
    """Run all calls, a few at once."""
    pending = iter(calls)

    async def work() -> None:
        for call in pending:
            reply = await call()
            if reply.status not in ok:
                raise SystemExit(f"the head server answered {reply.status}: {reply.body[:300]!r}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def head_costs(host: str, port: int, pid: int, every: Sequence[tuple[str, bytes]]) -> list[Cost]:
    """Measure the requests of these parts, and of callers."""
    token = [(RUN_TOKEN_HEADER.encode(), os.environ[TOKEN_ENV_VAR].encode())]
    costs = []
    async with InternalClient() as client:

        def put(member: str, body: bytes) -> Callable[[], Awaitable[Reply]]:
            return partial(client.request, "PUT", host, port, f"{MEMBERS_PATH}/{member}", body=body, headers=token)

        def look_up(*version: tuple[bytes, bytes]) -> Callable[[], Awaitable[Reply]]:
            return partial(client.request, "GET", host, port, ADDRESSES_PATH, headers=[*token, *version])

        async def cost(kind: str, calls: Sequence[Callable[[], Awaitable[Reply]]], ok: Sequence[int] = (200,)) -> None:
            before = cpu_s([pid])
            await all_of(calls, ok)
            costs.append(Cost(kind, len(calls), (cpu_s([pid]) - before) * 1e6 / len(calls)))

        joining = [put(*each) for each in every]
        await cost("registration of a part", joining)
        await cost("heartbeat of a part", joining * max(1, 5000 // len(every)))
        await cost("look-up of the whole list", [look_up()] * 200)
        version = (await look_up()()).headers["etag"].encode()
        # The parts must not count as lost meanwhile.
        await all_of(joining, (200,))
        await cost("look-up of an unchanged list", [look_up((b"if-none-match", version))] * 5000, (304,))
    return costs


def measure_head(parts: int, instances: int) -> list[Cost]:
    """Start a head server, and measure its CPU."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"+config_paths=[{ONE_TOOL.config},{SAMPLE_MODEL}]", "+only=none", "+head_server.port=0"]
        with started(words, folder, ready="head server: ") as (process, printed):
            host, port = printed.rpartition("http://")[2].split()[0].split(":")
            head = max(pid for pid in tree_of(process.pid) if _listens(pid, int(port)))
            run_id = asyncio.run(_run_id(host, int(port)))
            every = list(reports(run_id, parts, instances, ONE_TOOL.agent.removesuffix("_simple_agent")))
            return asyncio.run(head_costs(host, int(port), head, every))


def _listens(pid: int, port: int) -> bool:
    """Return whether a process has the socket of a port. The launcher has it too, but is older."""
    try:
        descriptors = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = {f"socket:[{row.split()[9]}]" for row in rows if int(row.split()[1].split(":")[1], 16) == port}
    return not sockets.isdisjoint(descriptors)


async def _run_id(host: str, port: int) -> str:
    headers = [(RUN_TOKEN_HEADER.encode(), os.environ[TOKEN_ENV_VAR].encode())]
    async with InternalClient() as client:
        reply = await client.request("GET", host, port, "/global_config_dict_yaml", headers=headers)
    lines: list[str] = json.loads(reply.body).splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("_ng_run_id: ")).strip("'\"")


def measure_writer() -> dict[int, float]:
    """Return megabytes per second by row size."""
    speeds = {}
    for size in ROW_BYTES:
        row = {"response": {"output": [{"text": "x" * size}]}, "reward": 1.0}
        with tempfile.TemporaryDirectory(dir=".") as folder, Appender(Path(folder, "out.jsonl")) as results:
            began_at = synced_at = time.perf_counter()
            rows = WRITTEN_BYTES // size
            for _ in range(rows):
                results.write(row)
                if time.perf_counter() - synced_at > 1.0:
                    results.sync()
                    synced_at = time.perf_counter()
            results.sync()
            speeds[size] = rows * size / 1e6 / (time.perf_counter() - began_at)
    return speeds


@contextmanager
def parts(
    url: str, dialect: str, runtime: str, words: Sequence[str] = (), *, environment: Environment = ONE_TOOL
) -> Iterator[Servers]:
    """Run each server in a part of its own, as on as many machines."""
    shared = [*settings_of(url, dialect, environment), *words]
    agent, environment_server = environment.agent, environment.agent.removesuffix("_simple_agent")
    with (
        servers(url, dialect, runtime, ["+only=policy_model", *words], environment=environment) as up,
        ExitStack() as stack,
    ):
        pids = {role: list(found) for role, found in up.pids.items()}
        for role, name in (("agent", agent), ("resources", environment_server)):
            joined, _ = stack.enter_context(started([*shared, f"+only={name}", f"+join={up.head}"], runtime))
            # The launcher of a part serves no rollouts; the server is the busiest of its processes.
            tree = tree_of(joined.pid)
            pids.setdefault(role, []).append(max(tree))
            pids[LAUNCHER] += [pid for pid in tree if pid != max(tree)]
        yield up._replace(pids=pids)


def report_rollouts(name: str, measured: Measured, local: Measured) -> dict[str, Any]:
    """Print the cost of one arrangement, and return it as JSON values."""
    ratio = measured.cpu_ms_in_all / local.cpu_ms_in_all
    note = "" if name == "local" else f"  {ratio:.2f} × local (target {MOST_RATIO})"
    print(f"{name:<8}{measured.rollouts_per_s:6.0f}/s  {measured.cpu_ms_in_all:.2f} ms CPU "
          f"({shown(measured.cpu_ms, 2)})  others {measured.others_share:.0%}{note}", flush=True)  # fmt: skip
    return {"cpu_ms": round(measured.cpu_ms_in_all, 3), "by_role": measured.cpu_ms, "ratio": round(ratio, 3)}


def main(words: Sequence[str]) -> int:
    """Measure the parts that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", type=int, default=1000)
    parser.add_argument("--instances", type=int, default=10, help="servers per part")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ray", action="store_true", help="also on a Ray cluster of its own")
    parser.add_argument("--skip-rollouts", action="store_true")
    options = parser.parse_args(words)
    os.environ.setdefault(TOKEN_ENV_VAR, secrets.token_urlsafe(24))
    print(f"head server with {options.parts * options.instances:,} servers in {options.parts:,} parts, one core:")
    costs = measure_head(options.parts, options.instances)
    for cost in costs:
        print(f"  {cost.kind:<30}{cost.cpu_us:8.0f} µs CPU{cost.per_core_s:10,.0f}/s per core")
    heartbeats_s = options.parts / HEARTBEAT_S
    share = heartbeats_s * costs[1].cpu_us / 1e6
    print(f"  heartbeats of all parts every {HEARTBEAT_S:g} s use {share:.0%} of a core")
    speeds = measure_writer()
    print("writer: " + ", ".join(f"{speed:,.0f} MB/s with rows of {size:,} bytes" for size, speed in speeds.items()))
    rollouts: dict[str, Any] = {}
    if not options.skip_rollouts:
        starts: dict[str, Any] = {"local": servers, "parts": parts}
        if options.ray:
            starts["ray"] = partial(servers, words=["+launcher=ray"])
        runs: dict[str, list[Measured]] = {name: [] for name in starts}
        for name in list(starts) * options.runs:
            runs[name].append(measure(Case(options.in_flight, 0.0), "responses", 1, start=starts[name]))
        local = middle_of(runs["local"])
        rollouts = {name: report_rollouts(name, middle_of(found), local) for name, found in runs.items()}
    print(json.dumps({"bench": "cluster", "parts": options.parts, "instances": options.instances,
                      "head_us": {cost.kind: round(cost.cpu_us) for cost in costs}, "writer_mb_s": speeds,
                      "rollouts": rollouts}))  # fmt: skip
    return 0

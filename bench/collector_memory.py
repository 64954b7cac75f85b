"""How the collector's peak memory grows with the number of tasks, at one concurrency.

    python -m bench collector_memory [--tasks 20000,200000] [--concurrency 256]

Each number of tasks is collected afresh in a process of its own, from an agent that answers at once; what is printed
is the peak resident memory of that process. Metrics, which are the agents' to make, are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import httptools
import orjson
import uvloop

from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.http.client import ServerClient
from nemo_gym.jsonl import write_rows
from nemo_gym.rollouts.collector import collect
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.tasks import TaskPlan

AGENT = "quick"
ALLOWED_MB = 10.0


class QuickAgent(asyncio.Protocol):
    """Answers a row with a reward, and any GET with the configuration in which it is the only agent."""

    def __init__(self, config: bytes) -> None:
        self._config = config
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        row, self._body = b"".join(self._body), []
        answer = row[:-1] + b',"response":{"output":[]},"reward":1.0}' if row else self._config
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
        self._transport.write(head + answer)


async def serve() -> None:
    """Be the agent until standard input is closed."""
    loop = asyncio.get_running_loop()
    config: list[bytes] = [b""]
    server = await loop.create_server(lambda: QuickAgent(config[0]), "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    yaml = f"{AGENT}: {{responses_api_agents: {{{AGENT}: {{host: 127.0.0.1, port: {port}}}}}}}\n"
    config[0] = orjson.dumps(yaml)
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)


def collect_from(port: int, tasks: Path, output: Path, concurrency: int) -> None:
    """Collect, and print the peak memory of this process in bytes."""
    settings = CollectionSettings(output_jsonl_fpath=output, agent_name=AGENT, num_samples_in_parallel=concurrency)
    files = RunFiles(results=output)
    client = ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=port))
    with locked(files), open_run(TaskPlan(tasks, settings, [AGENT]), files) as run:
        summary = uvloop.run(collect(client, run))
    assert summary.scored == summary.planned, summary
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")))


def measure(counts: Sequence[int], concurrency: int) -> list[float]:
    """The peak memory of each collection, in megabytes (1e6 bytes)."""
    me = [sys.executable, "-m", "bench", "collector_memory"]
    peaks = []
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*me, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent,
    ):
        assert agent.stdout is not None
        port = agent.stdout.readline().strip()
        for count in counts:
            tasks = Path(folder) / f"{count}.jsonl"
            rows = ({"responses_create_params": {"input": f"task {n}"}, "number": n} for n in range(count))
            write_rows(tasks, rows)
            started_at = time.monotonic()
            output = Path(folder) / f"out_{count}.jsonl"
            words = ["--port", port, "--input", str(tasks), "--output", str(output)]
            told = subprocess.run(
                [*me, "--concurrency", str(concurrency), *words], stdout=subprocess.PIPE, text=True, check=True
            )
            peaks.append(int(told.stdout) / 1e6)
            took_s = time.monotonic() - started_at
            print(f"{count:>9,} tasks  {peaks[-1]:7.1f} MB  {took_s:6.1f} s  {count / took_s:7,.0f}/s", flush=True)
            for path in Path(folder).iterdir():
                path.unlink()
        agent.communicate()
    return peaks


def main(words: Sequence[str]) -> int:
    """Measure, and say whether the growth is within what is allowed."""
    parser = argparse.ArgumentParser(prog="python -m bench collector_memory", description=__doc__)
    parser.add_argument("--tasks", default="20000,200000", help="numbers of tasks, in order")
    parser.add_argument("--concurrency", type=int, default=256)
    for flag in ("--port", "--input", "--output"):
        parser.add_argument(flag, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.serve:
        uvloop.run(serve())
        return 0
    if given.port:
        collect_from(int(given.port), Path(given.input), Path(given.output), given.concurrency)
        return 0
    peaks = measure([int(count) for count in given.tasks.split(",")], given.concurrency)
    growth = peaks[-1] - peaks[0]
    print(f"growth {growth:.1f} MB of {ALLOWED_MB:g} MB allowed, {given.concurrency} rollouts at once")
    return 0 if growth < ALLOWED_MB else 1

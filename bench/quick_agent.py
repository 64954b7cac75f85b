"""An agent that answers at once, and collections that use it through the normal command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import httptools

from bench.processes import tree_of
from bench.tree import HERE, NG, TREE, product_environment

AGENT = "quick"
TIMEOUT_S = 560.0
LOOK_EVERY_S = 0.1
TEXT = "It is a fine day, and the weather in the city is just what was forecast. " * 8
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1.0, "model": "mock", "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [], "output": [{
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
    }],
}  # fmt: skip
ADDED = b',"response":%b,"reward":1.0}' % json.dumps(RESPONSE).encode()


class AgentState:
    """State shared by the agent's connections: what its head server answers, and whether a row has been reported."""

    run = config = b""
    has_begun = True


class Connection(asyncio.Protocol):
    """A connection that answers rows with a reward, and a GET as the head server of a run with this agent only.

    Earlier revisions, which are compared with this one, ask for the configuration instead of the run.
    """

    def __init__(self, state: AgentState) -> None:
        self._state = state
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._asks_for_run = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._asks_for_run = url == b"/run"

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        row, self._body = b"".join(self._body), []
        if row and not self._state.has_begun:
            self._state.has_begun = True
            print(time.monotonic(), flush=True)
        described = self._state.run if self._asks_for_run else self._state.config
        answer = row[:-1] + ADDED if row else described
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
        self._transport.write(head + answer)


async def serve() -> None:
    """Print the port. After each input line, print the time of the next row. Stop when standard input is closed."""
    state = AgentState()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(state), "127.0.0.1", 0, backlog=20_000)
    port = server.sockets[0].getsockname()[1]
    yaml = f"{AGENT}: {{responses_api_agents: {{{AGENT}: {{host: 127.0.0.1, port: {port}}}}}}}\n"
    state.config = json.dumps(yaml).encode()
    agent = {"name": AGENT, "type": "responses_api_agents", "implementation": AGENT, "entrypoint": "app.py"}
    agent |= {"folder": ".", "host": "127.0.0.1", "port": port, "settings": {}}
    state.run = json.dumps({"run": {"servers": {AGENT: agent}}, "config_yaml": yaml}).encode()
    print(port, flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        state.has_begun = False


class Agent(NamedTuple):
    """The agent's process."""

    process: subprocess.Popen[str]
    port: int

    def await_first_row(self) -> None:
        """Ask the agent to report the time of the next row."""
        assert self.process.stdin is not None
        self.process.stdin.write("next\n")
        self.process.stdin.flush()

    def first_row_at(self) -> float:
        """Return the time of that row on the monotonic clock."""
        assert self.process.stdout is not None
        return float(self.process.stdout.readline())


@contextmanager
def quick_agent() -> Iterator[Agent]:
    """Run the agent for the duration of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.quick_agent"],
        cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Agent(process, int(process.stdout.readline()))
        finally:
            process.stdin.close()


class Collected(NamedTuple):
    """The cost of a collection."""

    first_row_s: float
    """From the command to the first row that the agent received."""
    took_s: float
    """From that row to the end of the command."""
    cpu_s: float
    """CPU of the collector and its child processes."""
    peak_mb: float
    """The sum of each process's peak resident memory (1e6 bytes)."""
    scored: int


def collect(agent: Agent, rows: Path, in_flight: int, repeats: int = 1, settings: Sequence[str] = ()) -> Collected:
    """Collect every row of a file `repeats` times through the command line; the output is next to the rows."""
    output = rows.with_name("out.jsonl")
    words = [f"+input_jsonl_fpath={rows}", f"+output_jsonl_fpath={output}", f"+agent_name={AGENT}",
             f"+num_repeats={repeats}", f"+num_samples_in_parallel={in_flight}", "+head_server.host=127.0.0.1",
             f"+head_server.port={agent.port}", "+overwrite=true", "+disable_aggregation=true", *settings]  # fmt: skip
    agent.await_first_row()
    began_at = time.monotonic()
    process = subprocess.Popen(
        [*NG, "eval", "run", "--no-serve", *words], cwd=TREE, env=product_environment(rows.parent),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    peaks: dict[int, float] = {}
    while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        peaks.update((pid, peak) for pid in tree_of(process.pid) if (peak := _peak_mb(pid)))
        if time.monotonic() - began_at > TIMEOUT_S:
            process.kill()
        time.sleep(LOOK_EVERY_S if time.monotonic() - began_at > 1.0 else LOOK_EVERY_S / 10)
    ended_at = time.monotonic()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"the collection failed (exit code {process.returncode})")
    first_row_at = agent.first_row_at()
    with output.open("rb") as lines:
        scored = sum(1 for _ in lines)
    return Collected(
        first_row_at - began_at, ended_at - first_row_at, usage.ru_utime + usage.ru_stime, sum(peaks.values()), scored
    )


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    # The status of a zombie process does not contain VmHWM.
    return next((int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmHWM")), 0.0)


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve())

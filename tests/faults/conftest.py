"""The three tiers as separate processes with a faulty proxy in front of each, and runs through them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson
import pytest
import yaml
from omegaconf import OmegaConf

from nemo_gym import jsonl
from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.rollouts.collector import collect
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.rollouts.tasks import TaskPlan

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
READY_WITHIN_S = 150.0
ENDED_WITHIN_S = 100.0
SLACK_S = 60.0
"""Extra time allowed for a busy machine, much less than a fault lasts."""
Row = dict[str, Any]
Key = tuple[int, int]


def openai_model(url: str, port: int) -> Any:
    settings = {"openai_base_url": url, "openai_api_key": "none", "openai_model": "scripted"}
    return {"responses_api_models": {"openai_model": {**at(port), "entrypoint": "app.py", **settings}}}


def simple_agent(port: int, **settings: Any) -> Any:
    refs = {
        "resources_server": {"type": "resources_servers", "name": "faulty"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    return {"responses_api_agents": {"simple_agent": {**at(port), "entrypoint": "app.py", **refs, **settings}}}


def at(port: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port}


FOLDERS = {
    "policy_model": REPOSITORY / "responses_api_models/openai_model",
    "judge_model": REPOSITORY / "responses_api_models/openai_model",
    "faulty": HERE / "environment/resources_servers/faulty",
    "agent": REPOSITORY / "responses_api_agents/simple_agent",
    "lenient_agent": REPOSITORY / "responses_api_agents/simple_agent",
}
PLACES = {
    "to-agent": "agent",
    "to-lenient-agent": "lenient_agent",
    "to-policy": "policy_model",
    "to-resources": "faulty",
    "to-judge": "judge_model",
    "to-endpoint": "endpoint",
}
"""The server behind each place of the proxy."""


def free_port() -> int:
    """Return a free port below the ephemeral range, so that the system does not assign it meanwhile."""
    while True:
        port = random.randrange(15_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Started(NamedTuple):
    """A process and its log file."""

    process: subprocess.Popen[bytes]
    log: Path
    code: int
    """The expected exit code after termination."""


@dataclass
class Tiers:
    """All servers, each behind a proxy."""

    ports: dict[str, int]
    """The ports of the servers themselves."""
    proxied: dict[str, int]
    proxy: subprocess.Popen[str]
    processes: dict[str, Started]
    """The process of each server."""

    def client(self) -> ServerClient:
        agents = {name: simple_agent(self.proxied[name]) for name in ("agent", "lenient_agent")}
        head = BaseServerConfig(host="127.0.0.1", port=1)
        return ServerClient(head_server_config=head, global_config_dict=OmegaConf.create(agents))

    def log_of(self, server: str) -> str:
        return self.processes[server].log.read_text()

    def command(self, word: str, place: str) -> None:
        """Make a place `refuse` or `accept` connections."""
        assert self.proxy.stdin is not None
        assert self.proxy.stdout is not None
        self.proxy.stdin.write(f"{word} {place}\n")
        self.proxy.stdin.flush()
        assert self.proxy.stdout.readline() == "done\n"

    def at_work(self, within_s: float = 100.0) -> dict[str, float]:
        """Return the number of running calls per server, after waiting up to `within_s` for it to drop to 0."""
        deadline = time.monotonic() + within_s
        ports = {name: self.ports[name] for name in FOLDERS}
        while True:
            busy = {name: metric(port, "requests_in_flight") for name, port in ports.items()}
            if not any(busy.values()) or time.monotonic() > deadline:
                return busy
            time.sleep(0.05)


def metric(port: int, name: str) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", verify=False, timeout=SLACK_S).text
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"nemo_gym_{name}{{"))


@contextmanager
def process(words: list[Any], **settings: Any) -> Iterator[subprocess.Popen[Any]]:
    with subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, **settings) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture(scope="session")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiers]:
    folder = tmp_path_factory.mktemp("tiers")
    env = {key: value for key, value in os.environ.items() if not key.startswith("NEMO_GYM")}
    env["XDG_RUNTIME_DIR"] = str(folder)
    with ExitStack() as stack:
        scripted = REPOSITORY / "tests/endpoint/scripted.py"
        endpoint = stack.enter_context(process([scripted], stdout=subprocess.PIPE, text=True))
        ports = {"endpoint": int(endpoint.stdout.readline()), **{name: free_port() for name in FOLDERS}}
        words = [f"{place}={ports[server]}" for place, server in PLACES.items()]
        proxy = stack.enter_context(process([HERE / "proxy.py", *words], stdout=subprocess.PIPE, text=True))
        listening = map(int, proxy.stdout.readline().split())
        proxied = dict(zip(PLACES.values(), listening, strict=True))
        orders = one_by_one(folder, ports, proxied)
        processes = {}
        for name, (words, code) in orders.items():
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process_env = {**env, "NEMO_GYM_CONFIG_PATH": name}
            started = stack.enter_context(
                process(words, cwd=HERE / "environment", env=process_env, stderr=log, stdout=log)
            )
            processes[name] = Started(started, Path(log.name), code)
        tiers = Tiers(ports, proxied, proxy, processes)
        wait_until_ready(tiers)
        yield tiers
        end(tiers)


def end(tiers: Tiers) -> None:
    """Terminate all servers and check that they exit, even during calls."""
    for started in tiers.processes.values():
        started.process.terminate()
    codes = {name: started.process.wait(ENDED_WITHIN_S) for name, started in tiers.processes.items()}
    assert codes == {name: started.code for name, started in tiers.processes.items()}


Orders = dict[str, tuple[list[Any], int]]
"""The command line of each Python process and its expected exit code, by server name."""


def one_by_one(folder: Path, ports: dict[str, int], proxied: dict[str, int]) -> Orders:
    """Return a process for each server, configured with the other servers' proxies."""
    orders: Orders = {}
    for name, server_folder in FOLDERS.items():
        config = folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(config_for({**proxied, name: ports[name]}, proxied["endpoint"])))
        orders[name] = ([server_folder / "app.py", f"+config_paths=[{config}]"], -signal.SIGTERM)
    return orders


def config_for(to: dict[str, int], endpoint: int) -> dict[str, Any]:
    """Return a configuration with these ports for all servers, including the process's own."""
    url = f"http://127.0.0.1:{endpoint}/v1"
    judge = {"judge": {"type": "responses_api_models", "name": "judge_model"}}
    return {
        "policy_model": openai_model(url, to["policy_model"]),
        "judge_model": openai_model(url, to["judge_model"]),
        "faulty": {"resources_servers": {"faulty": {**at(to["faulty"]), "entrypoint": "app.py", **judge}}},
        "agent": simple_agent(to["agent"]),
        "lenient_agent": simple_agent(to["lenient_agent"], tool_faults="tell_model"),
    }


def wait_until_ready(tiers: Tiers) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    for name, started in tiers.processes.items():
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{tiers.ports[name]}/", verify=False)
                break
            except httpx.TransportError:
                assert started.process.poll() is None, tiers.log_of(name)
                assert time.monotonic() < deadline, tiers.log_of(name)
                time.sleep(0.05)


@dataclass
class Collected:
    """The outcomes of a run's rows by case."""

    summary: Summary
    files: RunFiles
    took_s: float
    ended_after_s: dict[str, float]
    results: dict[str, Row]
    failures: dict[str, list[Row]]
    rows: list[Row]


def rows_by_case(path: Path) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in jsonl.read_rows(path):
        found.setdefault(row["case"], []).append(row)
    return found


@pytest.fixture(scope="session")
def collect_rows(tiers: Tiers, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Collected]:
    """Return a function that collects rows concurrently and reads the run's files. Default: in a new folder."""

    def run(rows: Iterable[Row], *, rollout_timeout_s: float, folder: Path | None = None, **given: Any) -> Collected:
        folder = folder or tmp_path_factory.mktemp("run")
        rows = list(rows)
        tasks = folder / "tasks.jsonl"
        jsonl.write_rows(tasks, rows)
        settings = CollectionSettings(
            output_jsonl_fpath=folder / "out.jsonl",
            agent_name="agent",
            rollout_timeout_s=rollout_timeout_s,
            retry_pause_s=0.05,
            **given,
        )
        files = RunFiles(results=settings.output_jsonl_fpath)
        ended: dict[str, float] = {}
        began_at = time.monotonic()

        def note(record: Record, summary: Summary) -> None:
            ended[record.row.fields["case"]] = time.monotonic() - began_at

        async def all_of_it() -> Summary:
            client = tiers.client()
            try:
                return await collect(client, opened, on_record=note)
            finally:
                await client.aclose()

        with open_run(TaskPlan(tasks, settings, ["agent", "lenient_agent"]), files) as opened:
            summary = asyncio.run(all_of_it())
        results = rows_by_case(files.results)
        return Collected(
            summary,
            files,
            time.monotonic() - began_at,
            ended,
            {case: line for case, (line,) in results.items()},
            rows_by_case(files.failures),
            rows,
        )

    return run


@pytest.fixture(scope="session")
def row_of() -> Callable[..., Row]:
    """Return a function that makes a row in which the model makes these calls, one per turn, and then answers.

    A call is `(tool, arguments)`. `fault` is an instruction for the proxies: place, path, kind, times. The last answer
    contains `nested` nested lists.
    """

    def row(
        case: str, calls: Iterable[tuple[str, Row]] = (("note", {}),), fault: str = "", nested: int = 0, **fields: Any
    ) -> Row:
        text = f"fault={fault} case={case};" if fault else f"case={case};"
        turns: list[list[Row]] = [
            [{"call": tool, "arguments": orjson.dumps({"text": text, **arguments}).decode()}]
            for tool, arguments in calls
        ]
        script = orjson.dumps([*turns, [{"text": "done", **({"nested": nested} if nested else {})}]]).decode()
        params = {"input": [{"role": "user", "content": text}], "metadata": {"script": script}}
        notes = sum(tool == "note" for tool, _ in calls)
        return {"responses_create_params": params, "case": case, "notes": notes, "question": text, **fields}

    return row

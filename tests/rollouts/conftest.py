"""A real agent server for the tests of the collector, and runs against it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.running import RunRecord, add_run, remove_run
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.config.subject import RunSubject
from nemo_gym.jsonl import write_rows
from nemo_gym.rollouts.collector import OnRecord, collect
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.outcome import Summary
from nemo_gym.rollouts.tasks import TaskPlan

AGENTS = ("sound", "mute", "sick")
Row = dict[str, Any]


class RowAgent:
    """The process of `row_agent.py`."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("row_agent.py")
        self.process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=100, verify=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self.process.communicate(timeout=100)

    def state(self) -> Any:
        return self._http.get("/state").json()

    def begin_again(self) -> None:
        self._http.post("/begin_again").raise_for_status()

    def release(self) -> None:
        self._http.post("/release").raise_for_status()

    def client(self) -> ServerClient:
        return ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=self.port))


@pytest.fixture(scope="session")
def shared_agent() -> Iterator[RowAgent]:
    with RowAgent() as started:
        yield started


@pytest.fixture
def agent(
    shared_agent: RowAgent, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RowAgent]:
    """The agent shared by all tests, with empty records. Its run is recorded, as those of commands are."""
    shared_agent.begin_again()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runs")))
    record = RunRecord(
        pid=shared_agent.process.pid,
        host="127.0.0.1",
        port=shared_agent.port,
        working_dir=os.getcwd(),
        started_at=time.time(),
    )
    add_run(record)
    yield shared_agent
    remove_run(record)


@pytest.fixture
def mortal_agent() -> Iterator[RowAgent]:
    """A separate agent that the test may kill. Its run is not recorded, like those on other machines."""
    with RowAgent() as started:
        yield started


@pytest.fixture
async def client(agent: RowAgent) -> AsyncIterator[ServerClient]:
    made = agent.client()
    yield made
    await made.aclose()


@dataclass
class Run:
    """The summary, files and notes of a collection."""

    summary: Summary
    files: RunFiles
    notes: list[str]

    @property
    def results(self) -> list[Row]:
        return list(jsonl.read_rows(self.files.results))

    @property
    def failures(self) -> list[Row]:
        return list(jsonl.read_rows(self.files.failures))

    @property
    def record(self) -> Any:
        return orjson.loads(self.files.record.read_bytes())

    @property
    def tasks(self) -> list[Row]:
        """Every task of the run, as written to the materialized file."""
        return list(jsonl.read_rows(self.files.materialized))

    @property
    def keys(self) -> list[tuple[int, int]]:
        """The sorted (task, repeat) keys of the results."""
        return sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in self.results)


def task(number: int = 0, **fields: Any) -> Row:
    """Return a row for the agent."""
    return {"responses_create_params": {"input": f"task {number}"}, "number": number, **fields}


@pytest.fixture
def write_tasks(tmp_path: Path) -> Callable[[Iterable[Row]], Path]:
    """Return a function that writes rows to the input file of this test."""

    def write(rows: Iterable[Row]) -> Path:
        path = tmp_path / "tasks.jsonl"
        write_rows(path, rows)
        return path

    return write


@pytest.fixture
def run_tasks(
    tmp_path: Path, client: ServerClient, write_tasks: Callable[[Iterable[Row]], Path]
) -> Callable[..., Awaitable[Run]]:
    """Return a function that collects rows. The runs of a test share an output; rows of None mean the last rows."""

    async def run(
        rows: Iterable[Row] | None,
        *,
        client: ServerClient = client,
        on_record: OnRecord | None = None,
        subject: RunSubject | None = None,
        secrets: SecretValues | None = None,
        **given: Any,
    ) -> Run:
        defaults = {"output_jsonl_fpath": tmp_path / "results" / "out.jsonl", "agent_name": "sound"}
        settings = CollectionSettings(**(defaults | {"retry_pause_s": 0.01} | given))
        files = RunFiles(results=settings.output_jsonl_fpath)
        tasks = tmp_path / "tasks.jsonl" if rows is None else write_tasks(rows)
        with open_run(TaskPlan(tasks, settings, AGENTS), files, subject, secrets=secrets) as opened:
            await collect(client, opened, on_record=on_record or (lambda record, summary: None))
        return Run(opened.summary, files, opened.notes)

    return run


@pytest.fixture
def run_again(run_tasks: Callable[..., Awaitable[Run]]) -> Callable[..., Awaitable[Run]]:
    """Return a function that resumes the run of this test. Rows of None mean the same input."""

    async def run(rows: Iterable[Row] | None = None, **settings: Any) -> Run:
        return await run_tasks(rows, **{"resume_from_cache": True, **settings})

    return run


@pytest.fixture
def make_task() -> Callable[..., Row]:
    return task

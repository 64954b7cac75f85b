"""Runs on several hosts: an environment with state, and the commands that start and use it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests import waiting
from tests.cluster.hosts import PATIENCE_S, Host

BIN = Path(sys.executable).parent
TOKEN = "token-of-a-run-in-a-test"
ENVIRONMENT = {"NEMO_GYM_RUN_TOKEN": TOKEN}
SERVER = "remembering"
AGENT = "remembering_agent"
MODEL = "policy_model"
FOLDER = Path(__file__).with_name("environments")


class Counts(NamedTuple):
    """The rollouts of a collection."""

    planned: int
    scored: int
    failed: int
    unresolved: int


def write_tasks(path: Path, tasks: int = 50) -> Path:
    """Write the tasks of a collection."""
    rows = [{"number": number, "responses_create_params": {"input": "Say something."}} for number in range(tasks)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Part:
    """The servers of a run that one host has started."""

    def __init__(self, host: Host, *words: str, env: dict[str, str] | None = None) -> None:
        self.host = host
        self.log = host.folder / f"run_{time.monotonic_ns()}.log"
        config = ("--config", FOLDER / "run.yaml", "--search-dir", FOLDER, "--model-type", "sample_model")
        command = (BIN / "ng_run", *config, *words)
        with self.log.open("w") as log:
            self.process: subprocess.Popen[Any] = host.popen(
                *command, env=ENVIRONMENT | (env or {}), stdout=log, stderr=log
            )

    def wait_for(self, text: str) -> None:
        """Wait until the log has this text."""
        until(lambda: text in self.log.read_text() or self.process.poll() is not None, self.log.read_text)
        assert text in self.log.read_text(), self.log.read_text()

    def ready(self) -> Part:
        self.wait_for("servers ready")
        return self

    def end(self) -> int:
        """Stop the servers as Ctrl-C does, and return the exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


until = partial(waiting.until, within_s=PATIENCE_S)
"""Wait for a condition, such as one of a host."""


def collecting(host: Host, tasks: Path, head: str, output: str, *words: str) -> subprocess.Popen[Any]:
    """Start a collection on a host from the run whose head server is at this address."""
    address = (f"+head_server.host='{head}'", "+head_server.port=11000")
    command = (BIN / "ng_collect_rollouts", "--agent", AGENT, "--input", tasks, "--output", output)
    with (host.folder / f"{output}.log").open("a") as log:
        return host.popen(*command, *address, *words, env=ENVIRONMENT, stdout=log, stderr=log)


def counts_of(host: Host, output: str) -> Counts:
    """Return the counts that a collection has printed."""
    log = (host.folder / f"{output}.log").read_text()
    found = re.findall(r"(\d+) planned = (\d+) scored \+ (\d+) failed \+ (\d+) unresolved", log.replace(",", ""))
    assert found, log
    return Counts(*map(int, found[-1]))


def results_of(host: Host, output: str) -> list[dict[str, Any]]:
    """Return the results of a collection, after a check that each rollout is there at most once."""
    results = [json.loads(line) for line in (host.folder / output).read_text().splitlines()]
    times = Counter((each["_ng_task_index"], each["_ng_rollout_index"]) for each in results)
    assert set(times.values()) <= {1}
    return results


def written(host: Host, output: str) -> int:
    """Return the number of rollouts that are written so far."""
    path = host.folder / output
    return path.read_bytes().count(b"\n") if path.exists() else 0


def await_more(host: Host, output: str, rollouts: int, collection: subprocess.Popen[Any]) -> None:
    """Wait until this many further rollouts are written, or until the collection has ended."""
    before = written(host, output)
    log = host.folder / f"{output}.log"
    until(lambda: written(host, output) > before + rollouts or collection.poll() is not None, log.read_text)


def strange_calls(host: Host) -> set[Any]:
    """Return the loopback addresses that a host has called although nothing of its own listens there."""
    return {each for each in host.dialled() if each.is_loopback and each.port not in host.listening()}

"""A Ray cluster on several hosts, and the commands that use it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.cluster.hosts import PATIENCE_S, Host, connected_hosts
from tests.cluster.runs import AGENT, BIN, FOLDER, MODEL, SERVER, Counts, write_tasks

PORT = 6379
RUN_S = 400.0
"""The time for a run that takes half a minute on an idle machine."""
OPTIONS = (
    "--num-cpus", "4", "--resources", '{"site": 100}', "--object-store-memory", "80000000", "--disable-usage-stats",
    "--include-log-monitor", "false",
)  # fmt: skip
# A node that refuses connections is lost after three seconds instead of fifteen. One that is silent still has 30 s.
CHECKS = '{"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}'
BLOCKS = (
    f"{SERVER}.resources_servers.{SERVER}", f"{AGENT}.responses_api_agents.simple_agent",
    f"{MODEL}.responses_api_models.sample_model",
)  # fmt: skip
"""The servers of a run."""
ENV = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


class RayCluster:
    """Hosts with Ray. The first one has the head node, on which no server runs if it asks for a `site`."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.head, *self.others = hosts
        self.hosts = hosts

    @property
    def address(self) -> str:
        return f"{self.head.ip}:{PORT}"

    def start(self) -> None:
        """Start Ray on all hosts."""
        head = ("--head", "--port", str(PORT), "--include-dashboard", "false", "--system-config", CHECKS)
        self._ray_start(self.head, *head, *OPTIONS[:2], *OPTIONS[4:])
        self.add(*self.others)

    def add(self, *hosts: Host) -> None:
        """Start Ray on hosts that are not part of the cluster, or not any more."""
        starting = [self._starting(host, "--address", self.address, *OPTIONS) for host in hosts]
        codes = [each.wait(PATIENCE_S) for each in starting]
        assert codes == [0] * len(hosts), "".join((host.folder / "ray.log").read_text() for host in hosts)

    def restart(self) -> None:
        """Kill everything on all hosts, and start Ray again."""
        for host in self.hosts:
            host.kill()
        self.start()

    def kill_head(self) -> None:
        """Kill the control service of Ray's head node, without which Ray can neither start nor find anything."""
        pids = self.head.pids()
        (service,) = (
            each for each in psutil.process_iter(["name"]) if each.info["name"] == "gcs_server" and each.pid in pids
        )
        service.kill()

    def run(self, *words: str | Path, name: str = "run", env: dict[str, str] | None = None) -> Run:
        """Start a command of ours on the head's host, with this cluster."""
        return Run(self.head, name, *words, env=ENV | {"RAY_ADDRESS": self.address} | (env or {}))

    def _ray_start(self, host: Host, *words: str) -> None:
        assert self._starting(host, *words).wait(PATIENCE_S) == 0

    def _starting(self, host: Host, *words: str) -> subprocess.Popen[Any]:
        # By default, all nodes use the path that the head's node has chosen, which is one folder for these hosts.
        own = ("--node-ip-address", host.ip, "--temp-dir", str(host.folder / "ray"))
        command = (BIN / "ray", "start", *own, *words)
        with (host.folder / "ray.log").open("a") as log:
            return host.popen(*command, env=ENV, stdout=log, stderr=log)


class Run:
    """A command on a host, with its output."""

    def __init__(self, host: Host, name: str, *words: str | Path, env: dict[str, str]) -> None:
        self.host = host
        self.log = host.folder / f"{name}_{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.process: subprocess.Popen[Any] = host.popen(*words, env=env, stdout=log, stderr=log)

    @property
    def text(self) -> str:
        return self.log.read_text()

    @property
    def counts(self) -> Counts:
        """The counts that a collection has printed."""
        found = re.findall(r"(\d+) planned = (\d+) scored[^+]*\+ (\d+) failed[^+]*\+ (\d+) unresolved", self.text)
        assert found, self.text
        return Counts(*map(int, found[-1]))

    def wait_for(self, text: str, within_s: float = PATIENCE_S) -> None:
        """Wait until the output has this text."""
        deadline = time.monotonic() + within_s
        while text not in self.text and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert text in self.text, self.text

    def wait(self, timeout_s: float = RUN_S) -> int:
        """Wait for the command's end and return its exit code."""
        return self.process.wait(timeout_s)

    def ready(self) -> Run:
        self.wait_for("Ctrl-C stops all")
        return self

    def end(self) -> int:
        """Stop the command as Ctrl-C does, and return its exit code."""
        self.process.terminate()
        return self.wait()


def servers(*words: str | Path, folder: Path = FOLDER) -> list[str | Path]:
    """Return the words of a command that starts the servers of a folder, none of them on the head's host."""
    config = ("--config", folder / "run.yaml", "--search-dir", folder, "--model-type", "sample_model")
    return [*config, "--launcher", "ray", *(f"++{block}.ray.resources.site=1" for block in BLOCKS), *words]


def collection(
    cluster: RayCluster,
    output: str,
    repeats: int,
    *words: str | Path,
    folder: Path = FOLDER,
    env: dict[str, str] | None = None,
) -> Run:
    """Start the servers and collect the rollouts of 50 tasks."""
    here = cluster.head.folder
    tasks = write_tasks(here / "tasks.jsonl")
    dataset = f"{{name: example, type: example, jsonl_fpath: {tasks}}}"
    config = here / "tasks.yaml"
    config.write_text(f"{AGENT}: {{responses_api_agents: {{simple_agent: {{datasets: [{dataset}]}}}}}}\n")
    asked = ("--config", config, "--split", "example", "--output", output, f"+num_repeats={repeats}")
    command = (BIN / "ng_e2e_collect_rollouts", *servers(folder=folder), *asked, *words)
    return cluster.run(*command, name=output, env=env)


@contextmanager
def ray_cluster(count: int, prefix: str) -> Iterator[RayCluster]:
    """Run Ray on this many hosts for the duration of the block."""
    with connected_hosts(count, prefix) as hosts:
        cluster = RayCluster(hosts)
        cluster.start()
        yield cluster

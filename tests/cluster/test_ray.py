"""Runs on a Ray cluster of three hosts: each rollout is there once, also if nodes, links or the driver are lost."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Host
from tests.cluster.ray_cluster import RayCluster, Run, collection, ray_cluster, servers
from tests.cluster.runs import AGENT, BIN, FOLDER, MODEL, SERVER, results_of, until, write_tasks, written

pytestmark = [pytest.mark.slow, pytest.mark.alone]

pytest.importorskip("ray", reason="Ray is not installed: pip install 'nemo-gym[ray]'")

PREFIX = "ngrr"
CUT_S = 20.0
WORKERS = f"++{SERVER}.resources_servers.{SERVER}.workers=2"
UP_AGAIN = re.compile(rf"server '{SERVER}(#2)?' is up again on")
OTHER_PROGRAM = Path(__file__).with_name("ray_program.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(3, PREFIX) as started:
        yield started


@pytest.fixture(autouse=True)
def tidy(cluster: RayCluster) -> Iterator[None]:
    """Expect no server process on any node after a test."""
    yield
    for host in cluster.hosts:
        until(lambda host=host: not our_processes(host), lambda host=host: str(our_processes(host)))


def our_processes(host: Host) -> list[str]:
    """Return the command lines of our processes, as the servers' warm process, on a host."""
    found = []
    for pid in host.pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        except OSError:
            continue
        if "nemo_gym" in command or "ng_" in command or command.startswith("ray::ServerActor"):
            found.append(command)
    return found


def lose(cluster: RayCluster, host: Host, run: Run, rollouts: int) -> None:
    """Kill a node and bring it back, then wait for further rollouts."""
    before = written(cluster.head, "all.jsonl")
    host.kill()
    cluster.add(host)
    until(lambda: written(cluster.head, "all.jsonl") > before + rollouts or run.process.poll() is not None)


def test_each_rollout_is_there_once_when_nodes_die(cluster):
    head, left, right = cluster.hosts
    run = collection(cluster, "all.jsonl", 40, WORKERS, "--concurrency", "25")
    until(lambda: written(head, "all.jsonl") > 300, lambda: run.text)
    status = json.loads(head.run(BIN / "ng_status", "--json", check=False).stdout)
    places = {(each["config_path"], each["host"], each["port"]) for each in status}
    assert {host for name, host, _ in places if name == SERVER} == {left.ip, right.ip}
    assert len(places) == 4
    for host in cluster.others:
        elsewhere = {port for _, ip, port in places if ip != host.ip}
        assert not [each for each in host.dialled() if each.is_loopback and each.port in elsewhere]
    lose(cluster, left, run, 300)
    until(lambda: UP_AGAIN.search(run.text) or run.process.poll() is not None, lambda: run.text)
    lose(cluster, right, run, 500)
    assert run.wait() == 0
    assert run.counts == (2000, 2000, 0, 0)
    assert len(results_of(head, "all.jsonl")) == 2000
    assert all(result["reward"] == 1.0 for result in results_of(head, "all.jsonl"))
    assert UP_AGAIN.search(run.text)


def test_run_outlives_a_cable_that_is_cut(cluster):
    head, left, _ = cluster.hosts
    run = collection(cluster, "cut.jsonl", 20, WORKERS, "--concurrency", "25")
    until(lambda: written(head, "cut.jsonl") > 100, lambda: run.text)
    left.cut()
    time.sleep(CUT_S)
    left.mend()
    assert run.wait() == 0
    assert run.counts == (1000, 1000, 0, 0)
    assert len(results_of(head, "cut.jsonl")) == 1000


def test_killed_driver_leaves_nothing_and_its_run_resumes(cluster):
    head = cluster.head
    other = cluster.run(BIN / "ng_run", *servers("+head_server.port=12000")).ready()
    first = collection(cluster, "killed.jsonl", 20, "--concurrency", "25")
    until(lambda: written(head, "killed.jsonl") > 100, lambda: first.text)
    first.process.send_signal(signal.SIGKILL)
    first.wait()
    before = written(head, "killed.jsonl")
    second = collection(cluster, "killed.jsonl", 20, "--resume")
    assert second.wait() == 0
    assert second.counts == (1000, 1000, 0, 0)
    assert len(results_of(head, "killed.jsonl")) == 1000 > before
    # The two runs of this cluster do not disturb each other.
    until(lambda: "3 of 3 servers answer" in head.run(BIN / "ng_status", "+head_server.port=12000").stdout)
    assert other.end() == 0


def test_slow_network_only_slows_rollouts_down(cluster):
    left, right = cluster.others
    left.slow(delay_ms=50, loss_percent=0.5)
    right.slow(delay_ms=50, loss_percent=0.5)
    try:
        run = collection(cluster, "slow.jsonl", 4)
        assert run.wait() == 0
    finally:
        left.fast()
        right.fast()
    assert run.counts == (200, 200, 0, 0)


def test_code_travels_to_the_nodes(cluster):
    head, left, right = cluster.hosts
    folder = head.folder / "own"
    shutil.copytree(FOLDER, folder)
    app = folder / "resources_servers" / SERVER / "app.py"
    app.write_text(f"{app.read_text()}\n\nprint('the code is in', __file__)\n")
    run = cluster.run(BIN / "ng_run", *servers(folder=folder)).ready()
    ran = next(line for line in run.text.splitlines() if "the code is in" in line)
    node = next(host for host in (left, right) if ran.startswith(f"({SERVER} {host.ip}) "))
    assert ran.split()[-1].startswith(str(node.folder))
    assert run.end() == 0


def test_cluster_without_room_ends_the_start(cluster):
    asked = f"++{MODEL}.responses_api_models.sample_model.ray.num_gpus=2"
    run = cluster.run(BIN / "ng_run", *servers(asked, "+ready_timeout_s=8"))
    assert run.wait() == 1
    # On a busy machine another server may be the first to exceed the time.
    assert re.search(
        r"Error: server '\w+' has waited 8 s for 1 CPU, .*; the cluster has .* free\. Add nodes", run.text
    )
    assert f"{MODEL} waits for 1 CPU, 2 GPU, 1 site" in run.text
    assert "Traceback" not in run.text


@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_servers_start_inside_another_ray_program(cluster, launcher):
    tasks = write_tasks(cluster.head.folder / "tasks.jsonl", 20)
    run = cluster.run(sys.executable, OTHER_PROGRAM, tasks, AGENT, FOLDER, launcher)
    assert run.wait() == 0, run.text
    assert "20 rewards of 1.0" in run.text


def test_dead_head_node_loses_no_scored_rollout(cluster):
    head = cluster.head
    # With this setting, Ray's own code ends the process after 18 s without an explanation.
    soon = {"RAY_gcs_rpc_server_reconnect_timeout_s": "18"}
    # At two rollouts of 0.2 s at a time, most are still owed when the run ends.
    run = collection(cluster, "headless.jsonl", 10, "--concurrency", "2", env=soon)
    until(lambda: written(head, "headless.jsonl") > 10, lambda: run.text)
    cluster.kill_head()
    assert run.wait() == 1
    assert re.search(
        r"^Error: Ray's head node at \S+ has not answered for \d+ s .* --resume\.$", run.text, re.MULTILINE
    )
    assert "Traceback" not in run.text
    results = results_of(head, "headless.jsonl")
    planned, scored, _, unresolved = run.counts
    assert (planned, scored) == (500, len(results))
    assert unresolved > 0
    assert all(result["reward"] == 1.0 for result in results)
    for host in cluster.hosts:
        until(lambda host=host: not our_processes(host), lambda host=host: str(our_processes(host)))
    cluster.restart()
    resumed = collection(cluster, "headless.jsonl", 10, "--concurrency", "50", "--resume")
    assert resumed.wait() == 0
    assert resumed.counts == (500, 500, 0, 0)
    assert len(results_of(head, "headless.jsonl")) == 500

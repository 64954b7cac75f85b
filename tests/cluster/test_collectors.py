"""Collectors on the agents' machines: every rollout is kept once, whatever is lost, and merged into one file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import PATIENCE_S, Host
from tests.cluster.runs import (
    AGENT,
    BIN,
    ENVIRONMENT,
    MODEL,
    SERVER,
    Part,
    await_more,
    collecting,
    counts_of,
    results_of,
    until,
    written,
)

COLLECTOR = "rollout_collector"
CONFIG = Path(__file__).parents[2] / "responses_api_agents/collecting_agent/configs/collecting_agent.yaml"
SHARDED = ("--collector", COLLECTOR, "--sharded")


def started(host: Host, names: str, *words: str) -> Part:
    folder = f"+{COLLECTOR}.responses_api_agents.collecting_agent.shard_dir={host.folder}/shards"
    return Part(host, "--config", str(CONFIG), folder, "--only", names, *words)


def joined(host: Host, head: Host) -> Part:
    """Start an agent and a collector on a host."""
    return started(host, f"{AGENT},{COLLECTOR}", "--join", f"http://{head.ip}:11000")


def merge(head: Host, *shards: Host) -> subprocess.CompletedProcess[str]:
    """Merge the results of a run with the shards of these hosts."""
    patterns = ",".join(f"{host.folder}/shards/*.jsonl" for host in shards)
    words = ("--input-glob", "all.jsonl", "--output", "all.jsonl", "--shards", patterns)
    address = (f"+head_server.host={head.ip}", "+head_server.port=11000")
    return head.run(BIN / "ng", "eval", "aggregate", *words, *address, env=ENVIRONMENT, check=False)


def test_each_rollout_is_kept_once(hosts, tasks):
    head, left, right = hosts
    started(head, f"{SERVER},{MODEL}").ready()
    assert all(part.ready() for part in [joined(left, head), joined(right, head)])
    words = ("--num-repeats", "20", "--concurrency", "60", *SHARDED)
    collection = collecting(head, tasks, head.ip, "all.jsonl", *words)
    until(lambda: written(head, "all.jsonl") > 150)
    right.power_off()
    await_more(head, "all.jsonl", 100, collection)
    collection.kill()
    collection.wait(PATIENCE_S)
    right.mend()
    joined(right, head).ready()
    resumed = collecting(head, tasks, head.ip, "all.jsonl", *words, "--resume")
    assert resumed.wait(PATIENCE_S) == 0, (head.folder / "all.jsonl.log").read_text()
    assert all("output" not in entry["response"] for entry in results_of(head, "all.jsonl"))
    without_right = merge(head, left)
    assert without_right.returncode == 1
    assert f"in node3:{right.folder}/shards/all." in without_right.stderr
    done = merge(head, left, right)
    assert done.returncode == 0, done.stdout + done.stderr
    results = results_of(head, "all.jsonl")
    assert len(results) == 1000
    assert all(result["reward"] == 1.0 and result["response"]["output"] for result in results)
    assert not any("_ng_shard" in result for result in results)
    [metrics] = json.loads((head.folder / "all_aggregate_metrics.json").read_text())
    assert metrics["ledger"] == {"planned": 1000, "scored": 1000, "failed": {}, "unresolved": 0}
    # The merged run is resumed like any other.
    again = collecting(head, tasks, head.ip, "all.jsonl", *words, "--resume")
    assert again.wait(PATIENCE_S) == 0, (head.folder / "all.jsonl.log").read_text()
    assert results_of(head, "all.jsonl") == results


@pytest.fixture
def small_disk(hosts) -> Iterator[Path]:
    """A disk of 64 KiB for the shards of the second host."""
    folder = hosts[1].folder / "shards"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_results_go_to_the_output_when_a_disk_is_full(hosts, small_disk, tasks):
    head, left, right = hosts
    started(head, f"{SERVER},{MODEL}").ready()
    assert all(part.ready() for part in [joined(left, head), joined(right, head)])
    collection = collecting(head, tasks, head.ip, "all.jsonl", "--num-repeats", "5", *SHARDED)
    assert collection.wait(PATIENCE_S) == 0
    assert counts_of(head, "all.jsonl") == (250, 250, 0, 0)
    log = (head.folder / "all.jsonl.log").read_text()
    assert log.count("on node2 cannot keep its results") == 1
    assert "No space left on device" in log
    assert "node3 cannot" not in log
    machines = {
        entry["_ng_shard"]["machine"] for entry in results_of(head, "all.jsonl") if "line" in entry["_ng_shard"]
    }
    assert machines == {"node2", "node3"}
    assert merge(head, left, right).returncode == 0
    results = results_of(head, "all.jsonl")
    assert len(results) == 250
    assert all(result["response"]["output"] and "_ng_shard" not in result for result in results)
    # A collector uses the agent on its own machine, if there is one.
    assert right.ip not in {each.address for each in left.dialled()}
    assert left.ip not in {each.address for each in right.dialled()}

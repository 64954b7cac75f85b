"""One config on several machines: its servers find each other, and every rollout is there once, whatever is lost."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
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
    strange_calls,
    until,
    written,
)

pytestmark = pytest.mark.slow

HERE = f"{AGENT},{MODEL}"


def url_of(host: Host) -> str:
    return f"http://{host.ip}:11000"


def started_twice(hosts: list[Host]) -> list[Part]:
    """Start the environment on the last two hosts, and the rest of the run on the first one. Return the two parts."""
    head, *others = hosts
    Part(head, "--only", HERE).ready()
    parts = [Part(host, "--only", SERVER, "--join", url_of(head)) for host in others]
    return [part.ready() for part in parts]


def status(host: Host, head: Host) -> str:
    words = (f"+head_server.host={head.ip}", "+head_server.port=11000")
    return host.run(BIN / "ng_status", *words, env=ENVIRONMENT, check=False).stdout


def test_rollouts_use_all_machines_and_keep_their_state(hosts, tasks):
    head, left, right = hosts
    first = Part(head, "--only", HERE).ready()
    parts = [Part(host, "--only", SERVER, "--join", url_of(head)).ready() for host in (left, right)]
    # Without a default route, the head server shows its machine's name.
    assert f"--only {SERVER} --join http://{head.name}:11000" in first.log.read_text()
    until(lambda: "4 of 4 servers answer" in status(right, head), lambda: status(right, head))
    collection = collecting(right, tasks, head.ip, "all.jsonl", "--num-repeats", "4")
    assert collection.wait(PATIENCE_S) == 0
    assert counts_of(right, "all.jsonl") == (200, 200, 0, 0)
    assert all(result["reward"] == 1.0 for result in results_of(right, "all.jsonl"))
    agents_calls = {each.address for each in head.dialled()}
    assert {left.ip, right.ip} <= agents_calls
    assert not any(strange_calls(host) for host in hosts)
    assert parts[0].end() == 0
    first.wait_for("node2 left")
    # The other machines stop when the run has ended.
    assert first.end() == 0
    assert parts[1].process.wait(PATIENCE_S) == 1
    assert "has not answered" in parts[1].log.read_text()


def test_rollouts_of_a_lost_machine_begin_again(hosts, tasks):
    head, left, right = hosts
    started_twice(hosts)
    collection = collecting(head, tasks, head.ip, "all.jsonl", "--num-repeats", "20", "--concurrency", "40")
    until(lambda: written(head, "all.jsonl") > 100)
    right.power_off()
    until(lambda: "lost: its machine has not reported" in status(left, head))
    await_more(head, "all.jsonl", 50, collection)
    right.mend()
    Part(right, "--only", SERVER, "--join", url_of(head)).ready()
    assert collection.wait(PATIENCE_S) == 0
    assert counts_of(head, "all.jsonl") == (1000, 1000, 0, 0)
    results = results_of(head, "all.jsonl")
    assert len(results) == 1000
    assert all(result["reward"] == 1.0 for result in results)


def test_collection_outlives_the_part_on_its_machine(hosts, tasks):
    head, left, _ = hosts
    parts = started_twice(hosts)
    collection = collecting(left, tasks, head.ip, "all.jsonl", "--num-repeats", "8", "--concurrency", "20")
    until(lambda: written(left, "all.jsonl") > 50)
    assert parts[0].end() == 0
    assert collection.wait(PATIENCE_S) == 0
    assert counts_of(left, "all.jsonl") == (400, 400, 0, 0)
    assert len(results_of(left, "all.jsonl")) == 400


def test_calls_wait_for_a_server_that_joins_later(hosts, tasks):
    head, left, _ = hosts
    Part(head, "--only", "none").ready()
    collection = collecting(left, tasks, head.ip, "all.jsonl")
    Part(left, "--only", HERE, "--join", url_of(head)).ready()
    until(lambda: "not started yet on any machine" in ready_state(head))
    Part(left, "--only", SERVER, "--join", url_of(head)).ready()
    assert collection.wait(PATIENCE_S) == 0
    assert counts_of(left, "all.jsonl") == (50, 50, 0, 0)
    until(lambda: ready_state(head) == '{"status":"ok","missing":{}}', lambda: ready_state(head))


def ready_state(head: Host) -> str:
    return httpx.get(f"{url_of(head)}/readyz", trust_env=False, timeout=PATIENCE_S).text


def test_clocks_of_machines_may_differ(hosts, tasks):
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
    if library is None:
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    head, left, right = hosts
    Part(head, "--only", HERE).ready()
    for host, offset in ((left, "+5h"), (right, "-400d")):
        clock = {"LD_PRELOAD": str(library), "FAKETIME": offset, "DONT_FAKE_MONOTONIC": "1"}
        Part(host, "--only", SERVER, "--join", url_of(head), env=clock).ready()
    assert collecting(right, tasks, head.ip, "all.jsonl", "--num-repeats", "4").wait(PATIENCE_S) == 0
    assert counts_of(right, "all.jsonl") == (200, 200, 0, 0)
    assert all(result["reward"] == 1.0 for result in results_of(right, "all.jsonl"))
    shown = [int(seconds) for seconds in re.findall(r"up (-?\d+) s", status(left, head))]
    assert len(shown) == 4
    assert all(0 <= seconds < PATIENCE_S for seconds in shown)


def test_machines_find_each_other_over_ipv6(hosts, tasks):
    head, left, _ = hosts
    everywhere = "+default_host='::'"
    Part(head, "--only", HERE, everywhere).ready()
    Part(left, "--only", SERVER, everywhere, "--join", f"http://[{head.ipv6}]:11000").ready()
    assert collecting(left, tasks, head.ipv6, "all.jsonl").wait(PATIENCE_S) == 0
    assert counts_of(left, "all.jsonl") == (50, 50, 0, 0)
    assert {each.address for each in head.dialled() if not each.is_loopback} == {left.ipv6}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": {"NEMO_GYM_RUN_TOKEN": "another-token-of-a-run"}}, "requires its run token"),
        (
            {"words": [f"+{SERVER}.resources_servers.{SERVER}.expose_tools_over_mcp=true"]},
            "cannot run on two machines",
        ),
        ({"words": ["+default_host=127.0.0.1"]}, "which the other machines of the run cannot reach"),
        ({"of_head": ["+run_token=false"]}, "is open (run_token: false)"),
    ],
)
def test_part_that_does_not_fit_is_refused(hosts, changes, message):
    head, left, _ = hosts
    Part(head, "--only", f"{HERE},{SERVER}", *changes.get("of_head", [])).ready()
    words = changes.get("words", [])
    part = Part(left, "--only", SERVER, "--join", url_of(head), *words, env=changes.get("env"))
    assert part.process.wait(PATIENCE_S) == 1
    text = part.log.read_text()
    assert message in text
    assert "Traceback" not in text

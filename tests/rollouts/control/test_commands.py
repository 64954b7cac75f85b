"""`ng eval ps`, `ctl` and `wait`, and collections in the background, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess

import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.rollouts.control.registry import registered
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.run_record import read_record
from tests.conftest import PATIENCE_S

pytestmark = pytest.mark.slow


def test_background_collection_is_listed_steered_and_awaited(terminal, agent):
    begun = terminal.run(*terminal.collecting("--detach"))
    assert begun.returncode == 0, begun.stderr
    pid = int(re.search(r"process (\d+), run", begun.stdout)[1])
    assert "ng eval wait x.jsonl" in begun.stdout
    (listed,) = json.loads(terminal.run("ps", "--json").stdout)
    assert listed["pid"] == pid
    assert str(terminal.folder / "x.jsonl") in terminal.run("ps").stdout
    terminal.until(lambda: terminal.status()["running"] == 8)
    assert "already" not in terminal.ctl(listed["run_id"][:8], "pause")
    assert "already paused" in terminal.ctl("pause")
    assert read_record(terminal.folder / "x_run.json").phase == "paused"
    assert "resumed" in terminal.ctl("x.jsonl", "resume")
    assert read_record(terminal.folder / "x_run.json").phase is None
    assert "cancelled; this interrupted 1 rollout of the task" in terminal.ctl("x.jsonl", "cancel", "7:0")
    terminal.until(lambda: terminal.status()["failed"])
    assert re.search(r", mean reward –, \d+:\d\d left\n", terminal.ctl("status"))
    assert re.search(r" left .*\n.* \d+:\d\d ", terminal.run("ps").stdout)
    assert terminal.run("wait", "x.jsonl", "--timeout-s", "1").returncode == 124
    agent.release()
    ended = terminal.run("wait", "x")
    assert (ended.returncode, "finished" in ended.stderr) == (0, True)
    assert terminal.run("wait", "x.jsonl").returncode == 0
    assert "8 planned = 7 scored + 1 failed (1 cancelled)" in (terminal.folder / "x_run/output.log").read_text()
    assert terminal.run("ps").stdout == "no collection is running\n"


def test_background_collection_reports_a_wrong_start(terminal):
    done = terminal.run(*terminal.collecting("--detach", "--limit", "3", "+agent_name=nobody"))
    assert done.returncode == 1
    assert "nobody" in done.stderr
    assert "Traceback" not in done.stderr


def test_background_collection_needs_its_folder(terminal):
    (terminal.folder / "x_run").touch()
    done = terminal.run(*terminal.collecting("--detach"))
    assert done.returncode == 1
    assert "x_run: the run's folder cannot be created (File exists)." in done.stderr


@pytest.fixture
def starting(tmp_path, record_folder, monkeypatch):
    """A collection of this process that is registered, but does not listen yet."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(record_folder))
    with registered(RunFiles(results=tmp_path / "x.jsonl"), "0123456789") as collection:
        yield collection


def pausing(terminal):
    """Start `ng eval ctl … pause`, and return its process once it waits for the collection."""
    process = terminal.start("ctl", "x.jsonl", "pause", stdout=subprocess.PIPE)
    assert "waiting up to 120 s for process" in process.stderr.readline()
    return process


def test_verb_waits_for_a_collection_that_is_starting(terminal, starting):
    refused = terminal.run("ctl", "x.jsonl", "status")
    assert (refused.returncode, "is starting or ending. Try again." in refused.stderr) == (1, True)
    process = pausing(terminal)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(starting.socket))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as lines:
            assert orjson.loads(lines.readline()) == {"verb": "pause"}
            lines.write(b'{"changed": true}\n')
    printed, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, printed) == (0, f"{terminal.folder}/x.jsonl: paused\n")


def test_verb_does_not_wait_for_a_collection_that_has_ended(terminal, starting):
    process = pausing(terminal)
    starting.remove()
    _, problem = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"process {os.getpid()} ended before it answered" in problem


def test_stopped_collection_ends_like_an_interrupted_one(terminal, agent):
    process = terminal.collect()
    assert "8 rollouts will stay unresolved" in terminal.ctl("x.jsonl", "stop")
    _, printed = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Resume x.jsonl" in printed
    assert terminal.record["state"] == "interrupted"
    assert terminal.run("wait", "x.jsonl").returncode == 130


def test_killed_collection_is_reported_as_killed(terminal):
    process = terminal.collect()
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = terminal.run("wait", "x.jsonl")
    assert done.returncode == 1
    assert "was killed" in done.stderr
    assert terminal.run("ps").stdout == "no collection is running\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "needs a verb: status, pause"),
        (("x.jsonl",), "'x.jsonl' is not a verb"),
        (("x.jsonl", "pauze"), "'pauze' is not a verb. Did you mean 'pause'?"),
        (("x.jsonl", "concurrency"), "a number of at least 1, or auto"),
        (("x.jsonl", "concurrency", "0"), "To start no further rollout, use pause"),
        (("x.jsonl", "cancel"), "cancel needs a task"),
        (("x.jsonl", "cancel", "1:x"), "'1:x' is not a task"),
        (("x.jsonl", "pause", "now"), "unexpected argument 'now'"),
        (("x.jsonl", "pause", "--failed"), "--failed can be used only with requeue"),
    ],
)
def test_wrong_words_are_explained(words, problem, ng, tmp_path):
    command = (*ng, "ctl", *words)
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_verbs_under_load_and_a_kill_lose_nothing(terminal, make_task, write_tasks, agent):
    rows, repeats, limit = 500, 20, 4096
    flaky = {"act": "fail_until", "until": 1, "failure_class": "environment_failed"}
    write_tasks(make_task(n, **(flaky if n % 50 == 0 else {"act": "held"})) for n in range(rows))
    settings = ("--num-repeats", str(repeats), "--concurrency", str(limit), "+max_attempts=9")
    process = terminal.collect(*settings)
    terminal.until(lambda: terminal.status()["running"] == limit)
    terminal.ctl("x.jsonl", "pause")
    terminal.ctl("x.jsonl", "cancel", "1")
    terminal.ctl("x.jsonl", "concurrency", "512")
    agent.release()
    terminal.until(lambda: terminal.status()["running"] == 0)
    terminal.ctl("x.jsonl", "requeue", "--failed")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    agent.begin_again()
    process = terminal.collect(*settings, "--resume")
    terminal.until(lambda: terminal.status()["running"] == limit)
    terminal.ctl("x.jsonl", "drain")
    agent.release()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert terminal.record["outcomes"]["unresolved"]
    last = terminal.run(*terminal.collecting(*settings, "--resume"))
    assert last.returncode == 0, last.stderr
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in jsonl.read_rows(terminal.folder / "x.jsonl")]
    outcomes = terminal.record["outcomes"]
    assert len(keys) == len(set(keys)) == outcomes["scored"]
    assert outcomes["planned"] == rows * repeats
    assert outcomes["planned"] == outcomes["scored"] + sum(outcomes["failed"].values()) + outcomes["unresolved"]
    assert outcomes["unresolved"] == 0
    assert all(verb in json.dumps(terminal.record) for verb in ("pause", "cancel", "requeue", "drain"))

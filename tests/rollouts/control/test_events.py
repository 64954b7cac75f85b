"""`ng eval events`: the events of real collections, also while they run and after they were killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from threading import Thread

import pytest

from nemo_gym.cli.events import Follower
from nemo_gym.jsonl import dump_line
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import Control, Planned, as_json
from nemo_gym.rollouts.lock import locked
from tests.conftest import PATIENCE_S

pytestmark = pytest.mark.slow

FOLLOW = ("events", "x.jsonl", "--follow", "--json")
PAUSED = Control(1.0, "pause", {}, {})


@pytest.fixture
def files(tmp_path):
    return RunFiles(results=tmp_path / "x.jsonl")


def write_events(files, *events) -> None:
    """Replace the ledger."""
    files.folder.mkdir(exist_ok=True)
    files.ledger.unlink(missing_ok=True)
    files.ledger.write_bytes(b"".join(dump_line(as_json(event)) for event in events))


def following(terminal):
    return terminal.start(*FOLLOW, stdout=subprocess.PIPE)


def read_until(follower, kind: str, count: int = 1) -> list[str]:
    """Return the lines that a follower prints until it has printed so many events of a kind."""
    lines = []
    while sum(json.loads(line)["event"] == kind for line in lines) < count:
        lines.append(follower.stdout.readline())
        assert lines[-1], follower.stderr.read()
    return lines


def the_rest_of(follower) -> str:
    printed, _ = follower.communicate(timeout=PATIENCE_S)
    return printed


def test_reader_follows_a_growing_run(terminal, make_task, write_tasks, agent, files):
    write_tasks([*(make_task(n) for n in range(3)), make_task(3, act="held")])
    terminal.collect()
    follower = following(terminal)
    lines = read_until(follower, "ended", 3)
    assert follower.poll() is None
    agent.release()
    lines += the_rest_of(follower).splitlines(keepends=True)
    assert follower.returncode == 0
    assert "".join(lines) == files.ledger.read_text()
    assert json.loads(lines[-1])["state"] == "finished"


def test_reader_of_a_killed_run_reports_it(terminal, make_task, write_tasks, files):
    write_tasks([make_task(0), make_task(1, act="held")])
    process = terminal.collect()
    follower = following(terminal)
    lines = read_until(follower, "ended")
    process.send_signal(signal.SIGKILL)
    printed, problem = follower.communicate(timeout=PATIENCE_S)
    assert follower.returncode == 1
    assert "".join(lines) + printed == files.ledger.read_text()
    assert problem.endswith("the collection was killed before it recorded its end. --resume continues it.\n")
    assert terminal.run("events", "x.jsonl").returncode == 0
    assert terminal.run("events", "x.jsonl", "--follow").returncode == 1


def test_reader_passes_the_end_of_an_earlier_session(terminal, agent):
    process = terminal.collect()
    terminal.ctl("x.jsonl", "stop")
    process.communicate(timeout=PATIENCE_S)
    terminal.collect("--resume")
    follower = following(terminal)
    read_until(follower, "session", 2)
    agent.release()
    assert json.loads(the_rest_of(follower).splitlines()[-1])["state"] == "finished"
    assert follower.returncode == 0


def test_reader_begins_again_with_a_new_run(terminal, files):
    files.results.touch()
    write_events(files, Planned(1.0, 4, 2, False, 0, 0), PAUSED)
    with locked(files):
        follower = following(terminal)
        read_until(follower, "control")
        # The new ledger is longer than the old one, as after a few rollouts.
        write_events(files, PAUSED, PAUSED, PAUSED, PAUSED, PAUSED)
        read_until(follower, "control", 5)
    printed, notes = follower.communicate(timeout=PATIENCE_S)
    assert (printed, follower.returncode) == ("", 0)
    assert f"{files.ledger.relative_to(terminal.folder)}: replaced by a new run, whose events follow\n" in notes


def test_reader_waits_for_the_ledger_and_says_so(files, capfd):
    found = []
    reader = Thread(target=lambda: found.extend(Follower(files, remind_s=0).events()))
    with locked(files):
        reader.start()
        printed = ""
        while f"waiting for {files.results}" not in printed:
            printed += capfd.readouterr().err
        write_events(files, PAUSED)
    reader.join(PATIENCE_S)
    assert found == [PAUSED]


def test_reader_ends_quietly_with_its_pipe(terminal):
    terminal.collect()
    follower = following(terminal)
    # All tasks are held, so no event follows.
    read_until(follower, "session")
    follower.stdout.close()
    assert follower.wait(PATIENCE_S) == 1
    assert follower.stderr.read() == ""


def test_reader_can_be_interrupted(terminal):
    terminal.collect()
    follower = following(terminal)
    read_until(follower, "planned")
    follower.send_signal(signal.SIGINT)
    assert (the_rest_of(follower), follower.returncode) == ("", 130)


def test_lines_for_people_are_short(terminal, make_task, write_tasks, agent):
    fails = make_task(1, act="fail_until", until=1, failure_class="lost")
    write_tasks([make_task(0, earns=0.5), fails, make_task(2, act="model_failed"), make_task(3, act="held")])
    process = terminal.collect("--retry-pause-s", "0.01")
    terminal.ctl("pause")
    terminal.ctl("resume")
    terminal.until(lambda: terminal.status()["running"] == 1)
    agent.release()
    process.communicate(timeout=PATIENCE_S)
    done = terminal.run("events", "x")
    lines = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", "", line) for line in done.stdout.splitlines()]
    assert all(len(line) < 180 for line in lines)
    assert re.fullmatch(r"session  process \d+ on \S+: .* eval run .*", lines[0])
    assert lines[1] == "planned  4 rollouts of 4 tasks planned"
    assert lines[-1] == "end      finished"
    ended = {re.sub(r", [\d.]+ s", "", line) for line in lines if line.startswith("ended")}
    assert ended >= {
        "ended    0:0 scored 0.500, 7 tokens",
        "ended    1:0 failed lost: not now",
        "ended    1:0 attempt 1 scored 1.000, 7 tokens",
        "ended    3:0 scored 1.000, 7 tokens",
    }
    assert any("2:0 failed model_failed: the endpoint is out of memory" in line for line in ended)
    assert 'control  pause: {"changed":true}' in lines


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        ((), 2, "output is missing"),
        (("x.jsonl", "y.jsonl"), 2, "expected at most one name, got 2"),
        (("x.jsonl", "--folow"), 2, "Did you mean '--follow'?"),
        (("y.jsonl",), 1, "y.jsonl: this output does not exist. Did you mean 'x.jsonl'?"),
        (("y",), 1, "y: this output does not exist. Did you mean 'x.jsonl'?"),
        (("nowhere/z.jsonl", "--follow"), 1, "nowhere/z.jsonl: this output does not exist. Check the path."),
        (("x_run",), 1, "x_run: this output does not exist. Did you mean 'x.jsonl'?"),
        (("x_run/ledger.jsonl",), 1, "this file belongs to the run of x.jsonl. Pass x.jsonl instead."),
        (("x_failures.jsonl", "--follow"), 1, "this file belongs to the run of x.jsonl. Pass x.jsonl instead."),
        (("old.jsonl",), 1, "old_run/ledger.jsonl: the run has no ledger."),
        (("old", "--follow"), 1, "old_run/ledger.jsonl: the run has no ledger."),
        (("damaged.jsonl",), 1, "damaged_run/ledger.jsonl:1: the line is invalid"),
    ],
)
def test_wrong_output_is_explained(words, code, problem, ng, tmp_path, files):
    write_events(files, PAUSED)
    damaged = RunFiles(results=tmp_path / "damaged.jsonl")
    damaged.folder.mkdir()
    damaged.ledger.write_text("{broken\n")
    for name in ("x.jsonl", "x_failures.jsonl", "old.jsonl", "damaged.jsonl"):
        (tmp_path / name).touch()
    command = (*ng, "events", *words)
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert problem in done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)

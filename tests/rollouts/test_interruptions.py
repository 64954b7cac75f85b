"""A collecting process that is killed or interrupted: nothing collected is lost, and nothing is counted twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from nemo_gym import jsonl

TASKS = 60
REPEATS = 4


@pytest.fixture
def command(tmp_path, agent, make_task, write_tasks):
    """The command line that collects this test's tasks; settings are added to it."""
    tasks = write_tasks(make_task(n, act="slow", lasts_s=0.02, text="x" * 2000) for n in range(TASKS))

    def make(*settings: str) -> list[str]:
        return [
            *(sys.executable, "-m", "nemo_gym.cli.main", "eval", "run", "--no-serve"),
            *("+head_server.host=127.0.0.1", f"+head_server.port={agent.port}", "+agent_name=sound"),
            *(f"+input_jsonl_fpath={tasks}", f"+output_jsonl_fpath={tmp_path / 'out.jsonl'}"),
            *(f"+num_repeats={REPEATS}", "+num_samples_in_parallel=8", *settings),
        ]

    return make


@pytest.fixture
def start(tmp_path, command):
    """Start the command line in this test's own folder."""
    started = []

    def run(*settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(*settings),
            cwd=tmp_path,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def line_count(path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(path, count: int) -> None:
    give_up_at = time.monotonic() + 20
    while line_count(path) < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


def expect_each_repeat_once(path) -> None:
    keys = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in jsonl.read_rows(path))
    assert keys == {(task, repeat): 1 for task in range(TASKS) for repeat in range(REPEATS)}


@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_is_killed_again_and_again_has_each_repeat_once(tmp_path, start, seed):
    chance = random.Random(seed)
    out = tmp_path / "out.jsonl"
    collected = []
    for _ in range(3):
        process = start("+resume_from_cache=true")
        wait_for_lines(out, line_count(out) + 1 + chance.randrange(50))
        time.sleep(chance.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        collected.append(line_count(out))
    assert collected[-1] < TASKS * REPEATS
    process = start("+resume_from_cache=true")
    told, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert f"240 planned = 240 scored ({collected[-1]} of them earlier) + 0 failed + 0 unresolved" in told
    expect_each_repeat_once(out)


def test_a_run_that_is_killed_before_its_first_result_begins_again(tmp_path, start):
    process = start("+resume_from_cache=true")
    give_up_at = time.monotonic() + 20
    while not any(tmp_path.glob("*out_materialized_inputs.jsonl*")):
        assert time.monotonic() < give_up_at
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    process = start("+resume_from_cache=true")
    assert process.wait(timeout=30) == 0
    expect_each_repeat_once(tmp_path / "out.jsonl")


def test_ctrl_c_keeps_what_was_collected_and_says_how_to_go_on(tmp_path, start, agent):
    out = tmp_path / "out.jsonl"
    process = start()
    wait_for_lines(out, 40)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    lines = line_count(out)
    assert 40 <= lines < TASKS * REPEATS
    assert sum(1 for _ in jsonl.read_rows(out)) == lines
    assert "Traceback" not in errors
    assert (
        f"interrupted: 240 planned = {lines} scored + 0 failed + {240 - lines} unresolved. "
        f"+resume_from_cache=true goes on with {out}"
    ) in errors
    process = start("+resume_from_cache=true")
    told, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert f"240 planned = 240 scored ({lines} of them earlier) + 0 failed + 0 unresolved" in told
    assert "mean/reward" in told
    expect_each_repeat_once(out)


def test_a_whole_run_tells_its_progress_and_its_files(tmp_path, start):
    process = start()
    told, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    progress = [line for line in errors.splitlines() if "rollouts (" in line]
    assert 1 <= len(progress) <= 11
    assert progress[-1].startswith("240/240 rollouts (100 %)")
    assert f"rollouts: {tmp_path / 'out.jsonl'}" in told
    assert f"metrics:  {tmp_path / 'out_aggregate_metrics.json'}" in told


@pytest.mark.parametrize("again", [[], ["+overwrite=true"]])
def test_the_command_replaces_results_only_when_it_is_told_to(tmp_path, start, again):
    out = tmp_path / "out.jsonl"
    out.write_text('{"precious": true}\n')
    process = start("+limit=1", "+disable_aggregation=true", *again)
    _, errors = process.communicate(timeout=30)
    if again:
        assert process.returncode == 0, errors
        assert line_count(out) == REPEATS
    else:
        assert process.returncode == 1
        assert errors.startswith(f"Error: {out}: holds rollouts of an earlier run. ")
        assert out.read_text() == '{"precious": true}\n'

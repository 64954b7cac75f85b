"""Collections that are killed or interrupted: no result is lost or counted twice."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter

import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.rollouts.job import RunFiles
from tests.conftest import SCRIPTS, Command
from tests.rows import line_count

pytestmark = pytest.mark.slow

TASKS = 60
REPEATS = 4


@pytest.fixture
def command(tmp_path, agent, make_task, write_tasks):
    """Return a function that returns the command line of this test's collection with further settings."""
    tasks = write_tasks(make_task(n, act="slow", lasts_s=0.02, text="x" * 2000) for n in range(TASKS))

    def make(*settings: str) -> list[str]:
        return [
            *(str(SCRIPTS / "ng"), "eval", "run", "--no-serve"),
            *("+head_server.host=127.0.0.1", f"+head_server.port={agent.port}", "+agent_name=sound"),
            *(f"+input_jsonl_fpath={tasks}", f"+output_jsonl_fpath={tmp_path / 'out.jsonl'}"),
            *(f"+num_repeats={REPEATS}", "+num_samples_in_parallel=8", *settings),
        ]

    return make


@pytest.fixture
def start(tmp_path, command, warm_commands):
    """Return a function that starts the command line in this test's folder."""
    started = []

    def run(*settings: str, is_warm: bool = True) -> Command:
        argv, env = command(*settings), {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        out, err = (tmp_path / f"{len(started)}.{stream}" for stream in ("out", "err"))
        if is_warm:
            process = warm_commands.start(out, err, argv=argv, cwd=str(tmp_path), env=env)
        else:
            with out.open("wb") as out_file, err.open("wb") as err_file:
                process = subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=out_file, stderr=err_file)
        started.append(Command(process, out, err))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.wait()


def wait_for(condition) -> None:
    give_up_at = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


def wait_for_lines(path, count: int) -> None:
    wait_for(lambda: line_count(path) >= count)


def held_after(quick: int, make_task):
    """Return tasks of which only the first ones end by themselves, so that a run cannot end before it is stopped."""
    return [make_task(n, act="slow" if n < quick else "held", lasts_s=0.02, text="x" * 2000) for n in range(TASKS)]


def expect_each_repeat_once(path) -> None:
    keys = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in jsonl.read_rows(path))
    assert keys == {(task, repeat): 1 for task in range(TASKS) for repeat in range(REPEATS)}


KILLS = 8
MIXED = [
    {"act": "slow", "lasts_s": 0.02},
    {"act": "slow", "lasts_s": 0.02},
    {"act": "fail_until", "until": 1, "failure_class": "lost"},
    {"act": "fail_until", "until": 2, "failure_class": "overloaded"},
    {"act": "fail_until", "until": 99, "failure_class": "invalid_task"},
    {"act": "crash"},
]
"""The tasks' behaviors, in turn: scored at once, scored after retries, failed permanently, failed in each attempt."""


@pytest.mark.slow
def test_repeatedly_killed_run_has_each_repeat_once(tmp_path, start, agent, make_task, write_tasks):
    rows = [make_task(n, text="x" * 2000, **MIXED[n % len(MIXED)]) for n in range(TASKS)]
    # The last task keeps the run from ending before it is killed.
    write_tasks([*rows, make_task(TASKS, act="held")])
    chance = random.Random(7)
    files = RunFiles(results=tmp_path / "out.jsonl")
    settings = ("+resume_from_cache=true", "+max_attempts=30", "+retry_pause_s=0.01", "+num_samples_in_parallel=2")
    for _ in range(KILLS):
        process = start(*settings)
        before = line_count(files.results)
        # Kill at a random time, before the first line or after some lines, possibly within a line.
        wait_for(files.lock.exists)
        lines = before + chance.randrange(20)
        give_up_at = time.monotonic() + chance.random() * 1.5
        while line_count(files.results) < lines and time.monotonic() < give_up_at:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        process.send(signal.SIGKILL)
        assert process.wait().code == -signal.SIGKILL
        if chance.random() < 0.3 and files.results.exists():
            # Simulate a crash of the machine, which loses the end of the file.
            os.truncate(files.results, max(0, files.results.stat().st_size - chance.randrange(3000)))
    agent.release()
    process = start(*settings)
    code, output, errors = process.wait()
    assert code == 0, errors

    keys = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in jsonl.read_rows(files.results))
    causes = {
        (row["_ng_task_index"], row["_ng_rollout_index"]): row["_ng_failure_class"]
        for row in jsonl.read_rows(files.failures)
    }
    failed = Counter(cause for key, cause in causes.items() if key not in keys)
    assert set(keys.values()) == {1}
    assert len(keys) == TASKS * REPEATS * 4 // 6 + REPEATS
    assert failed == {"invalid_task": 40, "agent_failed": 40}
    assert re.search(
        r"^244 planned = 164 scored \(\d+ of them earlier\) \+ 80 failed \(.*\) \+ 0 unresolved", output, re.MULTILINE
    )
    # Each attempt is written once, with a unique number.
    attempts = Counter(
        (row["_ng_task_index"], row["_ng_rollout_index"], row["_ng_attempt_index"])
        for row in jsonl.read_rows(files.failures)
    )
    assert set(attempts.values()) == {1}
    record = orjson.loads(files.record.read_bytes())
    assert record["state"] == "finished"
    outcomes = record["outcomes"]
    assert outcomes["planned"] == outcomes["scored"] + sum(outcomes["failed"].values()) + outcomes["unresolved"] == 244
    assert {each["state"] for each in record["earlier_sessions"]} <= {"killed", "finished"}
    (metrics,) = orjson.loads(files.metrics.read_bytes())
    assert metrics["ledger"] == {"planned": 244, "scored": 164, "failed": failed, "unresolved": 0}
    assert len(metrics["failed_tasks"]) == 20


def test_concurrent_run_into_same_output_is_rejected(tmp_path, start, agent, make_task, write_tasks):
    write_tasks(make_task(n, act="held" if n == TASKS - 1 else "ok") for n in range(TASKS))
    out = tmp_path / "out.jsonl"
    first = start()
    wait_for_lines(out, 1)
    second = start("+resume_from_cache=true")
    code, _, errors = second.wait()
    assert code == 1
    assert errors.startswith(f"Error: {out}: another run is writing this file (process {first.pid}, since ")
    agent.release()
    assert first.wait().code == 0
    expect_each_repeat_once(out)


def test_resume_rejects_differences_unless_forced(tmp_path, start):
    start("+limit=2").wait()
    process = start("+limit=2", "--temperature", "0.5", "--resume")
    code, _, errors = process.wait()
    assert code == 1
    assert "another responses_create_params.temperature (task 0: absent, now 0.5; 1 more tasks)" in errors
    process = start("+limit=2", "--temperature", "0.5", "--resume=force")
    code, output, errors = process.wait()
    assert code == 0, errors
    assert "8 planned = 8 scored (8 of them earlier)" in output


@pytest.mark.slow
def test_run_killed_before_first_result_starts_over(tmp_path, start):
    process = start("+resume_from_cache=true")
    give_up_at = time.monotonic() + 100
    while not any(tmp_path.glob("*out_materialized_inputs.jsonl*")):
        assert time.monotonic() < give_up_at
        time.sleep(0.0005)
    process.send(signal.SIGKILL)
    process.wait()
    process = start("+resume_from_cache=true")
    assert process.wait().code == 0
    expect_each_repeat_once(tmp_path / "out.jsonl")


def test_interrupt_keeps_results_and_reports_how_to_resume(tmp_path, start, agent, make_task, write_tasks):
    write_tasks(held_after(30, make_task))
    out = tmp_path / "out.jsonl"
    process = start()
    wait_for_lines(out, 40)
    process.send(signal.SIGINT)
    code, output, errors = process.wait()
    assert code == 130
    lines = line_count(out)
    assert 40 <= lines < TASKS * REPEATS
    assert sum(1 for _ in jsonl.read_rows(out)) == lines
    assert "Traceback" not in errors
    record = orjson.loads((tmp_path / "out_run.json").read_bytes())
    assert (record["state"], record["outcomes"]["scored"]) == ("interrupted", lines)
    assert not (tmp_path / ".out.jsonl.lock").exists()
    assert (
        f"interrupted: 240 planned = {lines} scored + 0 failed + {240 - lines} unresolved. Resume {out} with --resume"
    ) in errors
    agent.release()
    process = start("+resume_from_cache=true")
    code, output, errors = process.wait()
    assert code == 0, errors
    assert f"240 planned = 240 scored ({lines} of them earlier) + 0 failed + 0 unresolved" in output
    assert "mean/reward" in output
    expect_each_repeat_once(out)


@pytest.mark.parametrize("is_background", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_each_stop_signal_ends_run_in_order(tmp_path, start, make_task, write_tasks, number, is_background):
    write_tasks(held_after(30, make_task))
    out = tmp_path / "out.jsonl"
    # A shell makes the commands that a script starts with `&` ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_background else None
    process = start(is_warm=not is_background)
    if before is not None:
        signal.signal(signal.SIGINT, before)
    wait_for_lines(out, 10)
    if is_background:
        process.send(signal.SIGINT)
        wait_for_lines(out, 30 * REPEATS)
    process.send(number)
    code, _, errors = process.wait()
    assert code == 130, errors
    record = orjson.loads((tmp_path / "out_run.json").read_bytes())
    assert (record["state"], record["outcomes"]["scored"]) == ("interrupted", line_count(out))
    assert "interrupted: 240 planned" in errors
    assert "Traceback" not in errors


def test_run_ignores_signals_that_nohup_ignores(tmp_path, start, agent, make_task, write_tasks):
    write_tasks([make_task(0, act="held")])
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process = start("+num_repeats=1", is_warm=False)
    signal.signal(signal.SIGHUP, before)
    wait_for(lambda: agent.state()["begun"])
    process.send(signal.SIGHUP)
    agent.release()
    code, output, errors = process.wait()
    assert code == 0, errors
    assert "1 planned = 1 scored" in output


def test_run_reports_its_progress_and_files(tmp_path, start):
    process = start()
    code, output, errors = process.wait()
    assert code == 0, errors
    progress = [line for line in errors.splitlines() if "rollouts (" in line]
    assert 1 <= len(progress) <= 11
    assert progress[-1].startswith("240/240 rollouts (100 %)")
    assert f"rollouts: {tmp_path / 'out.jsonl'}" in output
    assert f"metrics:  {tmp_path / 'out_aggregate_metrics.json'}" in output


@pytest.mark.parametrize(("share", "code"), [("0.4", 1), ("0.5", 0), ("null", 0)])
def test_too_large_failed_share_sets_exit_code(tmp_path, start, make_task, write_tasks, share, code):
    write_tasks(make_task(n, act="crash" if n % 2 else "ok") for n in range(4))
    process = start(f"+max_failed_share={share}", "+num_repeats=1")
    ended_with, output, errors = process.wait()
    assert ended_with == code, errors
    failed, look = output.splitlines()[-2:]
    assert failed == "failed: 2 of 4 rollouts (50.0 %)"
    assert look.startswith("look:     ")
    assert look.endswith(f"ng view {tmp_path / 'out.jsonl'}")
    message = (
        f"Error: max_failed_share: 2 of 4 rollouts failed (50.0 %), but only 40.0 % may. The causes are in "
        f"{tmp_path / 'out_failures.jsonl'}."
    )
    assert (message in errors) == (code == 1)


@pytest.mark.parametrize("again", [[], ["+overwrite=true"]])
def test_results_are_replaced_only_on_request(tmp_path, start, again):
    out = tmp_path / "out.jsonl"
    out.write_text('{"precious": true}\n')
    process = start("+limit=1", "+disable_aggregation=true", *again)
    code, _, errors = process.wait()
    if again:
        assert code == 0, errors
        assert line_count(out) == REPEATS
    else:
        assert code == 1
        assert errors.startswith(f"Error: {out} contains rollouts of an earlier run. ")
        assert out.read_text() == '{"precious": true}\n'

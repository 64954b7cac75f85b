"""A run whose rollouts are run by several processes comes to what it comes to in one, whatever becomes of them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.cli.options import settings_from
from nemo_gym.errors import ConfigError
from nemo_gym.http.client import ServerClient
from nemo_gym.http.deadline import deadline_in
from nemo_gym.rollouts.crew import MEMBER_MODULE, Crew, processes_for
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.outcome import Outcome, Record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes under /proc")

TASKS = 80


def members_of(pid: int) -> set[int]:
    """The processes of the crew of this one."""
    children = {int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in told(path).split()}
    return {child for child in children if MEMBER_MODULE.encode() in told(Path(f"/proc/{child}/cmdline"))}


def told(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def wait_for(condition) -> None:
    give_up_at = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def lines_of(path: Path) -> list[bytes]:
    """The lines of a file in an order of their own, without the time that a connection had lasted."""
    return sorted(re.sub(rb"[\d.]+ s after", b"some time after", line) for line in path.read_bytes().splitlines())


def keys_in(path: Path) -> Counter[tuple[int, int]]:
    return Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in jsonl.read_rows(path))


MIX = [
    {},
    {"earns": 0.25, "text": "x" * 2_000_000},
    {"act": "slow", "lasts_s": 0.01},
    {"act": "slow", "lasts_s": 5},
    {"act": "crash"},
    {"act": "model_failed"},
    {"act": "cut"},
    {"act": "fail_until", "until": 1, "failure_class": "lost"},
    {"act": "fail_until", "until": 99, "failure_class": "overloaded"},
    {"act": "fail_until", "until": 1, "status": 429, "headers": {"retry-after": "0.05"}},
    {"act": "deny_its_key"},
    {"act": "answer", "bytes": "not JSON"},
    {"act": "answer", "bytes": "[]"},
    {"act": "answer", "bytes": '{"reward": "much"}'},
    {"act": "answer", "bytes": f'{{"reward": 1.0, "response": {{"prompt_token_ids": [{"12345, " * 999}6]}}}}'},
    {"act": "answer", "bytes": '{"_ng_no_persist": true}'},
    {"act": "answer", "bytes": '{"_ng_failure_class": "häßlich", "_ng_failure_retryable": true, "reward": 1}'},
]


async def test_several_processes_write_what_one_writes(run_tasks, make_task, tmp_path):
    rows = [make_task(n, **act) for n, act in enumerate([*MIX, *MIX])]
    runs = [
        await run_tasks(
            rows,
            num_collector_processes=processes,
            rollout_timeout_s=2,
            output_jsonl_fpath=tmp_path / f"{processes}.jsonl",
        )
        for processes in (1, 3)
    ]
    one, three = ([lines_of(run.files.results), lines_of(run.files.failures)] for run in runs)
    for ours, theirs in zip([*one[0], *one[1]], [*three[0], *three[1]], strict=True):
        assert ours == theirs
    assert len(one[0]) == 14
    assert runs[0].summary == runs[1].summary
    assert Counter(row["_ng_failure_class"] for row in runs[1].failures).keys() == {
        "timeout", "agent_failed", "model_failed", "lost", "overloaded", "environment_failed", "häßlich"
    }  # fmt: skip


async def test_no_more_rollouts_run_at_once_than_allowed_in_all_processes_together(run_tasks, make_task, agent):
    rows = [make_task(n, act="held") for n in range(60)]
    running = asyncio.create_task(run_tasks(rows, num_samples_in_parallel=7, num_collector_processes=3))
    await asyncio.to_thread(wait_for, lambda: agent.told()["now"] == 7)
    await asyncio.sleep(0.1)
    assert len(agent.told()["begun"]) == 7
    agent.release()
    assert (await running).summary.scored == 60
    assert agent.told()["most_at_once"] == 7


@pytest.mark.parametrize(("killed", "goes_on"), [(1, "by the other one"), (2, "by this one")])
async def test_processes_that_are_killed_cost_only_what_they_have_under_way(
    run_tasks, make_task, caplog, killed, goes_on
):
    rows = [make_task(n, act="slow", lasts_s=0.1) for n in range(40)]
    heard = []

    def kill(record, summary):
        heard.append(record.cause)
        if len(heard) == 8:
            for member in sorted(members_of(os.getpid()))[:killed]:
                os.kill(member, signal.SIGKILL)

    run = await run_tasks(rows, num_samples_in_parallel=8, num_collector_processes=2, on_record=kill)
    assert run.keys == [(n, 0) for n in range(40)]
    assert 0 < run.summary.repeated == len(run.failures) <= killed * 4
    assert {(row["_ng_failure_class"], row["_ng_failure_tier"]) for row in run.failures} == {("lost", "collector")}
    assert {row["_ng_attempt_index"] for row in run.failures} == {0}
    warnings = [record.getMessage() for record in caplog.records if "has died" in record.getMessage()]
    assert len(warnings) == killed
    assert warnings[-1].endswith(goes_on)
    assert not members_of(os.getpid())


class Alone:
    """Makes the attempts that no other process makes."""

    async def run(self, row):
        return Record(Outcome.UNRESOLVED, row)


async def test_a_process_that_hangs_is_killed_once_its_rollouts_are_overdue(client, make_task):
    row = make_task(act="held", agent_ref={"name": "sound"}, _ng_task_index=0, _ng_rollout_index=0)
    crew = Crew(Alone(), overdue_s=0.1)
    try:
        await crew.gather(1, client, rollout_timeout_s=30.0)
        for member in members_of(os.getpid()):
            os.kill(member, signal.SIGSTOP)
        with deadline_in(0.1):
            record = await asyncio.wait_for(crew.run(row), 10)
        assert (record.outcome, record.cause, record.may_retry) == (Outcome.FAILED, "lost", True)
        assert (await crew.run(row)).outcome is Outcome.UNRESOLVED
    finally:
        await crew.dismiss()
    assert not members_of(os.getpid())


async def test_model_calls_are_recorded_as_in_one_process(run_tasks, make_task, agent, tmp_path):
    client = agent.client()
    client.global_config_dict.update(observability_enabled=True, model_call_capture_dir=str(tmp_path / "calls"))
    run = await run_tasks([make_task(n) for n in range(2)], client=client, num_collector_processes=2)
    await client.aclose()
    assert [row["ng_model_call_capture"]["gaps"][0]["code"] for row in run.results] == ["no_model_calls"] * 2


async def test_a_process_calls_as_the_client_does_that_it_is_told_of(client):
    there = ServerClient.of_told(orjson.loads(orjson.dumps(client.of_this_run("a token", "run 1").told())))
    assert there.told() == client.told()
    assert there.agent_names() == client.agent_names()
    assert there.address_of("sound") == client.address_of("sound")
    await there.aclose()


@pytest.mark.parametrize(
    ("wanted", "at_once", "processes"),
    [(1, 5000, 1), (4, 5000, 4), (4, 3, 3), ("auto", 1, 1), ("auto", 1024, 1), ("auto", 1_000_000_000, None)],
)
def test_a_run_has_as_many_processes_as_it_has_use_for(wanted, at_once, processes):
    assert processes_for(wanted, at_once) == (processes or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (0, "has to be greater than or equal to 1, and is 0; or it has to be 'auto'"),
        (257, "has to be less than or equal to 256, and is 257"),
        ("many", "has to be a valid integer, and is 'many'; or it has to be 'auto'"),
    ],
)
def test_another_number_of_processes_is_refused(given, told):
    with pytest.raises(ConfigError, match=rf"^num_collector_processes: it {told}"):
        settings_from(CollectionSettings, {"output_jsonl_fpath": "x.jsonl", "num_collector_processes": given})


@pytest.fixture
def start(tmp_path, agent, make_task, write_tasks):
    """Start the command that collects slow tasks, in two processes."""
    tasks = write_tasks(make_task(n, act="slow", lasts_s=0.05, text="x" * 2000) for n in range(TASKS))
    started = []

    def run(*settings: str) -> subprocess.Popen[str]:
        words = (
            *("+head_server.host=127.0.0.1", f"+head_server.port={agent.port}", "+agent_name=sound"),
            *(f"+input_jsonl_fpath={tasks}", f"+output_jsonl_fpath={tmp_path / 'out.jsonl'}"),
            *("+num_samples_in_parallel=8", "+num_collector_processes=2", "+disable_aggregation=true", *settings),
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "nemo_gym.cli.main", "eval", "run", "--no-serve", *words],
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


def members_at_work(process: subprocess.Popen[str], out: Path) -> set[int]:
    wait_for(lambda: out.exists() and out.read_bytes().count(b"\n") >= 8)
    members = members_of(process.pid)
    assert len(members) == 2
    return members


def live(pids: set[int]) -> set[int]:
    return {pid for pid in pids if MEMBER_MODULE.encode() in told(Path(f"/proc/{pid}/cmdline"))}


def test_a_run_that_is_killed_takes_its_processes_along_and_is_resumed(tmp_path, start):
    files = RunFiles(results=tmp_path / "out.jsonl")
    process = start()
    members = members_at_work(process, files.results)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    wait_for(lambda: not live(members))
    assert files.results.read_bytes().count(b"\n") < TASKS
    process = start("+resume_from_cache=true")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert keys_in(files.results) == {(n, 0): 1 for n in range(TASKS)}
    assert not files.failures.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_behind(tmp_path, start, number):
    out = tmp_path / "out.jsonl"
    process = start()
    members = members_at_work(process, out)
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert not live(members)
    assert "Traceback" not in errors
    lines = sum(1 for _ in jsonl.read_rows(out))
    assert f"interrupted: {TASKS} planned = {lines} scored + 0 failed + {TASKS - lines} unresolved" in errors

"""Collection of many concurrent tasks: limits, memory, files and counts."""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import subprocess
import sys
import textwrap
from collections import Counter

import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.errors import DataError
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.tasks import TaskPlan
from tests.conftest import PATIENCE_S
from tests.waiting import async_until

pytestmark = pytest.mark.bare


def live_rows() -> int:
    return sum(1 for thing in gc.get_objects() if type(thing) is dict and "drawn" in thing)


async def test_thousands_of_tasks_are_scored(run_tasks, make_task, agent):
    run = await run_tasks([make_task(n, earns=n % 2) for n in range(5_000)])
    assert run.keys == [(n, 0) for n in range(5_000)]
    assert run.summary.mean_reward == 0.5
    assert len(agent.state()["begun"]) == 5_000


@pytest.mark.parametrize("parallel", [1, 7])
async def test_no_more_rollouts_run_at_once_than_allowed(run_tasks, make_task, agent, parallel):
    rows = [make_task(n, act="held") for n in range(40)]
    running = asyncio.create_task(run_tasks(rows, num_samples_in_parallel=parallel))
    await async_until(lambda: agent.state()["now"] == parallel, PATIENCE_S)
    await asyncio.sleep(0.1)
    assert len(agent.state()["begun"]) == parallel
    agent.release()
    assert (await running).summary.scored == 40
    assert agent.state()["most_at_once"] == parallel


async def test_all_slots_are_used_while_one_rollout_takes_long(run_tasks, make_task, agent):
    rows = [make_task(0, act="held"), *(make_task(n) for n in range(1, 30))]
    ended = []
    running = asyncio.create_task(
        run_tasks(rows, num_samples_in_parallel=2, on_record=lambda record, summary: ended.append(record))
    )
    await async_until(lambda: len(ended) == 29, PATIENCE_S)
    assert agent.state()["now"] == 1
    agent.release()
    run = await running
    assert sorted(run.keys) == [(n, 0) for n in range(30)]
    assert run.results[-1]["_ng_task_index"] == 0


async def test_task_is_created_only_when_slot_is_free(run_tasks, make_task, agent):
    rows = (make_task(n, act="held", drawn=[n]) for n in range(200))
    running = asyncio.create_task(run_tasks(rows, num_samples_in_parallel=3))
    await async_until(lambda: agent.state()["now"] == 3, PATIENCE_S)
    assert live_rows() == 3
    agent.release()
    assert (await running).summary.scored == 200


async def test_records_are_not_kept_in_memory(run_tasks, make_task):
    alive = []

    def count(record, summary):
        if summary.finished % 50 == 0:
            alive.append(live_rows())

    rows = (make_task(n, drawn=[n]) for n in range(400))
    await run_tasks(rows, num_samples_in_parallel=4, on_record=count, num_repeats=2)
    # Each worker holds its row, its result, and one of its previous two.
    assert len(alive) == 16
    assert max(alive) <= 4 * 3


async def test_result_is_written_before_its_task_is_counted(run_tasks, make_task, tmp_path):
    seen = []

    def look(record, summary):
        lines = sum(1 for _ in jsonl.read_rows(tmp_path / "results" / "out.jsonl"))
        failures = sum(1 for _ in jsonl.read_rows(tmp_path / "results" / "out_failures.jsonl"))
        seen.append((lines, failures) == (summary.scored, summary.failed))

    await run_tasks([make_task(n, act="crash" if n % 3 else "ok") for n in range(30)], on_record=look)
    assert seen == [True] * 30


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
async def test_planned_is_the_sum_of_all_outcomes(run_tasks, make_task, seed):
    chance = random.Random(seed)
    acts = ["ok", "crash", "cut", "model_failed", "fail_twice", "answer", "slow"]
    rows = [
        make_task(
            n, act=chance.choice(acts), bytes=chance.choice(["{}", "x", '{"_ng_no_persist": true}']), lasts_s=0.02
        )
        for n in range(60)
    ]
    run = await run_tasks(rows, num_repeats=3, num_samples_in_parallel=chance.randint(1, 50))
    summary = run.summary
    assert summary.planned == 180 == summary.scored + summary.failed + summary.unresolved
    assert (len(run.results), len(run.failures)) == (summary.scored, summary.failed + summary.repeated)
    last = {(row["_ng_task_index"], row["_ng_rollout_index"]): row["_ng_failure_class"] for row in run.failures}
    assert Counter(last.values()) == summary.failed_by_cause
    assert len({*run.keys, *last}) == len(run.keys) + len(last)


async def test_every_task_is_written_as_sent(run_tasks, make_task):
    run = await run_tasks([make_task(1), make_task(2)], num_repeats=2, responses_create_params={"temperature": 0.5})
    assert [
        (row["_ng_task_index"], row["_ng_rollout_index"], row["responses_create_params"])
        for row in jsonl.read_rows(run.files.materialized)
    ] == [(n, repeat, {"input": f"task {n + 1}", "temperature": 0.5}) for n in range(2) for repeat in range(2)]


async def test_failures_file_exists_even_if_empty(run_tasks, make_task):
    run = await run_tasks([make_task()])
    assert run.files.failures.read_bytes() == b""


async def test_cancelled_run_keeps_results_and_counts_unresolved(run_tasks, make_task, tmp_path, agent):
    rows = [make_task(n, act="held" if n % 2 else "ok") for n in range(20)]
    seen = []
    running = asyncio.create_task(run_tasks(rows, on_record=lambda record, summary: seen.append(summary)))
    await async_until(lambda: len(seen) == 10, PATIENCE_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    summary = seen[-1]
    assert (summary.planned, summary.scored, summary.failed, summary.unresolved) == (20, 10, 0, 10)
    assert sum(1 for _ in jsonl.read_rows(tmp_path / "results" / "out.jsonl")) == 10


# Existing results


async def test_existing_results_are_rejected_and_kept(run_tasks, make_task):
    first = await run_tasks([make_task(0)])
    before = first.files.results.read_bytes()
    with pytest.raises(DataError, match=r"out\.jsonl contains rollouts .* --resume to .* --overwrite to"):
        await run_tasks([make_task(1)])
    assert first.files.results.read_bytes() == before


async def test_existing_failures_are_rejected(run_tasks, make_task):
    await run_tasks([make_task(act="crash")])
    with pytest.raises(DataError, match=r"out_failures\.jsonl contains rollouts"):
        await run_tasks([make_task()])


async def test_output_that_shares_files_with_another_is_rejected(run_tasks, make_task, tmp_path):
    other = tmp_path / "results" / "model-1.5"
    run = await run_tasks([make_task(0)], output_jsonl_fpath=other)
    tasks = run.tasks
    message = rf"model-1\.7: the run would replace model-1_materialized_inputs\.jsonl, which belongs to {other}, "
    with pytest.raises(DataError, match=message):
        await run_tasks([make_task(1)], output_jsonl_fpath=other.with_name("model-1.7"))
    assert run.tasks == tasks
    await run_tasks([make_task(1)], output_jsonl_fpath=other.with_name("model-1.7"), overwrite=True)
    assert [row["number"] for row in run.tasks] == [1]


async def test_files_of_running_collection_are_not_shared(run_tasks, make_task, agent, tmp_path):
    first, second = (tmp_path / "results" / name for name in ("model-1.5", "model-1.7"))
    running = asyncio.create_task(run_tasks([make_task(0, act="held")], output_jsonl_fpath=first))
    await async_until(lambda: agent.state()["now"] == 1, PATIENCE_S)
    with locked(RunFiles(results=first)), pytest.raises(DataError, match=f"which belongs to {first}"):
        await run_tasks([make_task(1)], output_jsonl_fpath=second)
    agent.release()
    assert (await running).summary.scored == 1


async def test_overwrite_removes_the_earlier_run(run_tasks, make_task):
    first = await run_tasks([make_task(0), make_task(1, act="crash")])
    first.files.metrics.write_text("[]")
    again = await run_tasks([make_task(2)], overwrite=True)
    assert [row["number"] for row in again.results] == [2]
    assert again.failures == []
    assert sum(1 for _ in jsonl.read_rows(again.files.materialized)) == 1
    assert not again.files.metrics.exists()


async def test_overwrite_with_invalid_rows_keeps_earlier_run(run_tasks, make_task):
    first = await run_tasks([make_task(0)])
    before = {path: path.read_bytes() for path in first.files.results.parent.rglob("*") if path.is_file()}
    with pytest.raises(DataError):
        await run_tasks([{"responses_create_params": {}}], overwrite=True)
    assert {path: path.read_bytes() for path in before} == before


async def test_input_that_the_run_would_replace_is_rejected(run_tasks, make_task):
    first = await run_tasks([make_task(act="crash")])
    before = first.files.failures.read_bytes()
    settings = CollectionSettings(output_jsonl_fpath=first.files.results, agent_name="sound", overwrite=True)
    replacing = open_run(TaskPlan(first.files.failures, settings, ["sound"]), first.files)
    with pytest.raises(DataError, match="this run reads the file, but would write"):
        replacing.__enter__()
    assert first.files.failures.read_bytes() == before


async def test_failures_can_be_rows_of_another_run(run_tasks, make_task, tmp_path):
    first = await run_tasks([make_task(0), make_task(1, act="crash")])
    rows = [{**row, "act": "ok"} for row in first.failures]
    again = await run_tasks(rows, output_jsonl_fpath=tmp_path / "again.jsonl")
    assert again.summary.scored == 1
    assert again.keys == [(1, 0)]


def test_run_files_are_written_next_to_the_output(tmp_path):
    files = RunFiles(results=tmp_path / "a.b.jsonl")
    paths = [files.materialized, files.failures, files.metrics, files.record, files.folder, files.prepared.parent]
    assert [path.name for path in paths] == [
        "a.b_materialized_inputs.jsonl",
        "a.b_failures.jsonl",
        "a.b_aggregate_metrics.json",
        "a.b_run.json",
        "a.b_run",
        "a.b",
    ]
    assert {path.parent for path in (files.logs, files.output_of_command, files.ungraded)} == {files.folder}
    assert RunFiles(results=tmp_path / "x").prepared.parent.name == "x_data"


def test_output_may_be_a_link_in_a_loop(tmp_path):
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    assert RunFiles(results=loop).lock == tmp_path / ".loop.jsonl.lock"


# The limits of the machine


def test_few_open_files_only_reduce_concurrency(agent, make_task, write_tasks, tmp_path):
    tasks = write_tasks([make_task(n, act="slow", lasts_s=0.05) for n in range(200)])
    finished = collect_in_a_process(agent, tasks, tmp_path, limit=resource.RLIMIT_NOFILE, value=300)
    assert finished.stdout.strip() == "200 scored"
    assert "open files are limited to 300" in finished.stderr
    assert 1 < agent.state()["most_at_once"] <= 187


def test_full_disk_ends_the_run_with_one_message(agent, make_task, write_tasks, tmp_path):
    tasks = write_tasks([make_task(n, text="x" * 1000) for n in range(50)])
    finished = collect_in_a_process(agent, tasks, tmp_path, limit=resource.RLIMIT_FSIZE, value=20_000)
    out = tmp_path / "out.jsonl"
    kept = sum(1 for _ in jsonl.read_rows(out))
    assert 0 < kept < 50
    assert finished.stdout.strip() == (
        f"DataError: {out}: cannot be written to (File too large). Free some disk space, then resume with --resume. "
        f"The {kept} scored rollouts are saved in {out}."
    )
    assert out.read_bytes().endswith(b"}\n")


def collect_in_a_process(agent, tasks, folder, *, limit, value):
    """Collect in a process with a resource limit that is set after the tasks are written."""
    script = f"""
        import asyncio, resource, signal
        from pathlib import Path
        from nemo_gym.config.settings import BaseServerConfig
        from nemo_gym.errors import DataError
        from nemo_gym.calls.client import ServerClient
        from nemo_gym.rollouts.collector import collect
        from nemo_gym.rollouts.job import CollectionSettings, RunFiles
        from nemo_gym.rollouts.opening import open_run
        from nemo_gym.rollouts.tasks import TaskPlan

        settings = CollectionSettings(output_jsonl_fpath={str(folder / "out.jsonl")!r}, agent_name="sound")
        files = RunFiles(results=settings.output_jsonl_fpath)
        plan = TaskPlan(Path({str(tasks)!r}), settings, ["sound"])
        client = ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port={agent.port}))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            with open_run(plan, files) as run:
                resource.setrlimit({limit}, ({value}, {value}))
                print(asyncio.run(collect(client, run)).scored, "scored")
        except DataError as error:
            print("DataError:", error)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )


async def test_adaptive_concurrency_is_recorded(run_tasks, make_task, agent):
    rows = [make_task(n, act="slow", lasts_s=0.05) for n in range(900)]
    run = await run_tasks(rows, num_samples_in_parallel="auto")
    assert sorted(run.keys) == [(n, 0) for n in range(900)]
    record = orjson.loads(run.files.record.read_bytes())
    assert record["settings"]["num_samples_in_parallel"] == "auto"
    first = record["concurrency_steps"][0]
    assert (first["limit"], first["then"], first["why"]) == (16, 32, "throughput grew")
    # How far throughput and limit grow depends on the machine.
    assert 16 < agent.state()["most_at_once"] <= max(step["then"] for step in record["concurrency_steps"])

"""Ending a run once the interval of each agent's mean reward is narrow enough."""

from __future__ import annotations

import asyncio
import random
from itertools import islice

import pytest

from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.rollouts.budget import STARTED_GRADUALLY, Precision, Sample
from nemo_gym.rollouts.collector import by_repeat
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.schemas.row import Row, TaskKey
from tests.conftest import PATIENCE_S
from tests.waiting import async_until


def half_width_of(run) -> float:
    rewards: dict[int, list[float]] = {}
    for row in run.results:
        rewards.setdefault(row["_ng_task_index"], []).append(row["reward"])
    return mean_interval(rewards).half_width


async def test_run_ends_when_interval_is_narrow(run_tasks, run_again, make_task):
    rows = [make_task(n, earns=n % 2) for n in range(600)]
    run = await run_tasks(rows, num_samples_in_parallel=4, until_halfwidth=0.1)
    assert 80 < run.summary.scored < 150
    assert half_width_of(run) <= 0.1
    assert run.summary.ended_by.startswith("until_halfwidth: reached by sound ±0.09")
    # The earlier rollouts count, so a resumed run adds only what a narrower interval needs.
    run = await run_again(num_samples_in_parallel=4, until_halfwidth=0.05)
    assert run.summary.kept > 80
    assert 330 < run.summary.scored < 480
    assert half_width_of(run) <= 0.05


async def test_many_parallel_rollouts_start_gradually(run_tasks, make_task, agent):
    held = [make_task(n, act="held", earns=n % 2) for n in range(900)]
    running = asyncio.create_task(run_tasks(held, until_halfwidth=0.1))
    await async_until(lambda: agent.state()["now"] == STARTED_GRADUALLY, PATIENCE_S)
    # Time enough for further rollouts to start, if they could.
    await asyncio.sleep(0.2)
    assert agent.state()["now"] == STARTED_GRADUALLY
    agent.release()
    assert (await running).summary.ended_by.startswith("until_halfwidth: reached by sound")


async def test_agents_stop_independently(run_tasks, make_task):
    rows = [
        make_task(n, earns=n % 2 if n < 300 else 1, agent_ref={"name": "sound" if n < 300 else "mute"})
        for n in range(600)
    ]
    run = await run_tasks(rows, num_samples_in_parallel=4, until_halfwidth=0.08)
    scored = {name: sum(row["agent_ref"]["name"] == name for row in run.results) for name in ("sound", "mute")}
    assert scored["mute"] < 60
    assert 130 < scored["sound"] < 220


async def test_wide_interval_uses_all_planned_rollouts(run_tasks, make_task):
    run = await run_tasks([make_task(n, earns=n % 2) for n in range(40)], num_repeats=2, until_halfwidth=0.01)
    assert (run.summary.scored, run.summary.ended_by) == (80, None)


async def test_discarded_results_do_not_count(run_tasks, make_task):
    rows = [make_task(n, act="answer", bytes='{"reward": 1, "_ng_no_persist": true}') for n in range(60)]
    run = await run_tasks(rows, num_samples_in_parallel=1, until_halfwidth=0.5)
    assert (run.summary.unresolved, run.summary.ended_by) == (60, None)


async def test_first_repeats_of_random_tasks_start_first(run_tasks, make_task):
    run = await run_tasks([make_task(n) for n in range(50)], num_repeats=2)
    keys = [row.key for row in by_repeat(run.files.materialized, shuffles=True)]
    assert [key.repeat for key in keys] == [0] * 50 + [1] * 50
    tasks = [key.task for key in keys[:50]]
    assert sorted(tasks) == list(range(50))
    assert tasks != sorted(tasks)
    assert keys == [row.key for row in by_repeat(run.files.materialized, shuffles=True)]


def test_rollouts_after_running_one_do_not_count():
    sample = Sample()
    for task in range(100):
        sample.start(TaskKey(task, 0))
    for task in range(1, 100):
        sample.end(TaskKey(task, 0), 1.0)
    assert sample.rewards == {}
    assert sample.half_width() is None
    sample.end(TaskKey(0, 0), None)
    assert len(sample.rewards) == 99
    assert sample.half_width() < 0.05


@pytest.mark.parametrize("reward", [0.5, 0.1])
def test_equal_rewards_between_0_and_1_never_end_run(reward):
    sample = Sample()
    for task in range(1000):
        sample.start(TaskKey(task, 0))
        sample.end(TaskKey(task, 0), reward)
    assert sample.half_width() is None


def test_reason_stays_if_running_rollouts_widen_interval(tmp_path):
    rows = [Row({"_ng_task_index": n, "_ng_rollout_index": 0, "agent_ref": {"name": "sound"}}) for n in range(100)]
    precision = Precision(0.1, RunFiles(results=tmp_path / "out.jsonl"))
    pending = precision.within(iter(rows))
    started = list(islice(pending, 60))
    for row in started[:40]:
        precision.end(Record(Outcome.SCORED, row, reward=0.2 + 0.1 * (row.key.task % 2)))
    assert list(pending) == []
    for row in started[40:]:
        precision.end(Record(Outcome.SCORED, row, reward=10.0))
    assert precision.reached().startswith("until_halfwidth: reached by sound ±0.01")


def test_few_tasks_never_end_run():
    sample, chance = Sample(), random.Random(1)
    for repeat in range(20):
        for task in range(29):
            key = TaskKey(task, repeat)
            sample.start(key)
            sample.end(key, chance.random())
    assert sample.half_width() is None

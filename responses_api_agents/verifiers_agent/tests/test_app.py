"""Episodes of a worker that behaves well, badly or not at all. The real package is in tests/borders."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import ValidationError

from nemo_gym import (
    AgentFailed,
    DataError,
    EnvironmentFailed,
    InvalidTask,
    ModelFailed,
    RolloutTimedOut,
    ServerLost,
)
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, run, serving
from responses_api_agents.verifiers_agent.app import VerifiersAgent
from responses_api_agents.verifiers_agent.place import WorkerSettings, taskset_of
from responses_api_agents.verifiers_agent.prepare import prepare

PATIENCE_S = 60.0
PYTHON = str(Path(__file__).with_name("stub.py"))
"""A program that ignores the worker's file, and is a worker by itself."""


@pytest.fixture
async def agent_of():
    """Yield a function that starts an agent for the rest of the test."""
    async with AsyncExitStack() as stack:

        async def start(taskset="stub", **settings):
            model = FakeModel(["Done."])
            agent = make_server(VerifiersAgent, model=model, taskset=taskset, python=PYTHON, **settings)
            await stack.enter_async_context(serving(agent))
            return agent

        yield start


async def played(agent, **task):
    return await run(agent, taskset="stub", task=task)


async def test_episode_becomes_a_rollout(agent_of):
    graded = await played(
        await agent_of(), trace={"rewards": {"right": [0.5, 2.0], "short": [1.0, 0.1]}, "metrics": {"n": 3}}
    )
    assert graded.reward == pytest.approx(1.1)
    assert (graded.right, graded.short, graded.n) == (0.5, 1.0, 3.0)
    assert graded.reward_components == {"right": 1.0, "short": 0.1}
    assert graded.response.last_text == "Done."
    assert graded.model_dump()["responses_create_params"]["input"][0]["content"] == "Go."


async def test_numbers_never_replace_fields_of_the_result(agent_of):
    graded = await played(await agent_of(), trace={"rewards": {"reward": [0.25, 2.0]}, "metrics": {"task": 7.0}})
    assert (graded.reward, graded.verifiers_reward, graded.verifiers_task) == (0.5, 0.25, 7.0)
    assert graded.task["trace"]


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("exit", "ended with exit code 3. Its last output: out of memory"),
        ("close", "closed its output"),
        ("hang", "sent nothing for 2 s"),
        ("not JSON", "not JSON: b'Traceback"),
        ("not an object", "not an object"),
        ("endless line", "more than 100,000 bytes"),
    ],
)
async def test_lost_worker_is_replaced(agent_of, monkeypatch, do, reason):
    monkeypatch.setattr("responses_api_agents.verifiers_agent.link.END_S", 0.2)
    agent = await agent_of(silence_timeout_s=2.0 if do == "hang" else PATIENCE_S, largest_episode_mb=100_000 / 2**20)
    with pytest.raises(ServerLost) as lost:
        await played(agent, do=do, length=300_000)
    assert reason in str(lost.value)
    assert lost.value.tier == "environment"
    agent.config.silence_timeout_s = PATIENCE_S
    assert (await played(agent)).reward == 1.0


async def test_rollouts_of_a_lost_worker_all_fail(agent_of):
    agent = await agent_of()
    waiting = [asyncio.create_task(played(agent, do="wait")) for _ in range(3)]
    await until(lambda: agent._workers._worker and len(agent._workers._worker._playing) == 3)
    results = await asyncio.gather(played(agent, do="exit"), *waiting, return_exceptions=True)
    assert [type(each) for each in results] == [ServerLost] * 4


async def test_flood_and_stray_answers_change_nothing(agent_of):
    assert (await played(await agent_of(), do="flood")).reward == 1.0


async def test_cancelled_and_late_rollouts_cancel_their_episode(agent_of, tmp_path):
    log = tmp_path / "log"
    agent = await agent_of(f"stub?log={log}", timeout_s=PATIENCE_S)
    running = asyncio.create_task(played(agent, do="wait"))
    await until(lambda: agent._workers._worker and agent._workers._worker._playing)
    running.cancel()
    await until(log.exists)
    agent.config.timeout_s = 0.5
    with pytest.raises(RolloutTimedOut, match=r"within 0\.5 s"):
        await played(agent, do="wait")
    await until(lambda: log.read_text().count("cancelled") == 2)


@pytest.mark.parametrize(
    ("start", "kind", "reason"),
    [
        ("unusable", EnvironmentFailed, "no taskset"),
        ("exit", ServerLost, "exit code 4"),
        ("silent", ServerLost, "sent nothing for 1 s"),
        ("wrong", ServerLost, "another message than `ready`"),
    ],
)
async def test_failed_start_fails_the_rollout(agent_of, start, kind, reason):
    agent = await agent_of(f"stub?start={start}", start_timeout_s=1.0 if start == "silent" else PATIENCE_S)
    for _ in range(2):
        with pytest.raises(kind, match=reason):
            await played(agent)


UNSAMPLED = {"message": {"role": "user", "content": "Go."}, "sampled": False}
SCORED = {"rewards": {"right": None}}


def error(kind):
    return [{"type": kind, "message": "it broke"}]


@pytest.mark.parametrize(
    ("trace", "episode", "kind", "reason"),
    [
        (SCORED, {}, EnvironmentFailed, "right did not run"),
        ({"rewards": {}}, {}, EnvironmentFailed, "lacks a reward function"),
        ({"stop_condition": "scoring_timeout"}, {}, RolloutTimedOut, "scoring_timeout"),
        ({"nodes": [UNSAMPLED, UNSAMPLED]}, {}, AgentFailed, "not asked"),
        ({"ok": False, "errors": error("ProviderError")}, {"ok": False}, ModelFailed, "it broke"),
        ({"ok": False, "errors": error("HarnessError")}, {"ok": False}, AgentFailed, "it broke"),
        ({"ok": False, "errors": error("TaskError")}, {"ok": False}, EnvironmentFailed, "it broke"),
        ({}, {"ok": False, "errors": error("TimeoutError")}, RolloutTimedOut, "it broke"),
        ({}, {"ok": False}, EnvironmentFailed, "recorded no error"),
        ({}, {"traces": []}, EnvironmentFailed, "recorded no error"),
        ({}, {"traces": "none"}, EnvironmentFailed, "invalid episode"),
        ({"branches": [{"nodes": [9], "trainable": True}]}, {}, EnvironmentFailed, "invalid episode"),
        ({"rewards": {"right": [1e308, 10.0]}}, {}, EnvironmentFailed, "the reward is inf"),
    ],
)  # fmt: skip
async def test_failed_episode_has_no_reward(agent_of, trace, episode, kind, reason):
    with pytest.raises(kind, match=reason):
        await played(await agent_of(), trace=trace, episode=episode)


async def test_answers_without_a_result_fail(agent_of):
    agent = await agent_of()
    with pytest.raises(EnvironmentFailed, match="an answer without a result"):
        await played(agent, do="no result")
    with pytest.raises(AgentFailed, match="used another model"):
        await played(agent, asks=False)
    with pytest.raises(InvalidTask, match="the row is of 'other'"):
        await run(agent, taskset="other?size=1", task={})


def test_rows_are_the_tasks_of_the_taskset(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", "stub?size=2", python=PYTHON)))
    assert [row["task"] for row in rows] == [{"idx": 0}, {"idx": 1}]
    assert rows[1]["responses_create_params"]["input"][0]["content"] == "1?"
    for taskset, reason in (
        ("stub?size=0", "has no tasks"),
        ("stub?size=1&start=unfinished", "did not end its list"),
        ("stub?start=unusable", "no taskset"),
        ("?size=1", "expected the name of a taskset"),
    ):
        with pytest.raises(DataError, match=reason):
            prepare(tmp_path / "none.jsonl", taskset, python=PYTHON)
    with pytest.raises(DataError, match="cannot be started"):
        prepare(tmp_path / "none.jsonl", "stub", python=str(tmp_path / "none"))


def test_address_has_the_settings_of_the_taskset():
    assert taskset_of("a_v1") == {"id": "a_v1"}
    assert taskset_of("a?n=3&task.url=http://b/c&task.deep.on=true&name=x y") == {
        "id": "a", "n": 3, "task": {"url": "http://b/c", "deep": {"on": True}}, "name": "x y",
    }  # fmt: skip
    for wrong in ("", " a", "a?b", "a?b=1&b.c=2"):
        with pytest.raises(ValidationError):
            WorkerSettings(taskset=wrong)


async def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition has not become true"
        await asyncio.sleep(0.02)

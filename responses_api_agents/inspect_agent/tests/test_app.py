"""Samples of a worker that behaves well, badly or not at all. The real package is in tests/borders."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from nemo_gym import DataError, EnvironmentFailed, InvalidTask, RolloutTimedOut, ServerLost
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, run, serving
from responses_api_agents.inspect_agent.app import InspectAgent
from responses_api_agents.inspect_agent.place import InspectPlace
from responses_api_agents.inspect_agent.prepare import prepare
from responses_api_agents.inspect_agent.worker import number_of, reward_of

PATIENCE_S = 60.0
PYTHON = str(Path(__file__).with_name("stub.py"))
"""A program that ignores the worker's file, and is a worker by itself."""


@pytest.fixture
async def agent_of():
    """Yield a function that starts an agent for the rest of the test."""
    async with AsyncExitStack() as stack:

        async def start(task="stub", **settings):
            agent = make_server(InspectAgent, model=FakeModel(["Done."]), task=task, python=PYTHON, **settings)
            await stack.enter_async_context(serving(agent))
            return agent

        yield start


async def played(agent, **sample):
    return await run(agent, inspect_task="stub", sample=sample)


async def test_sample_becomes_a_rollout(agent_of):
    numbers = {
        "rewards": {"match": [0.5, 1.0]},
        "metrics": {"f1": 0.25, "reward": 7.0},
        "info": {"match": {"value": 1}},
    }
    graded = await played(await agent_of(), target="Done.", trace=numbers)
    assert (graded.reward, graded.match, graded.f1, graded.inspect_reward) == (0.5, 0.5, 0.25, 7.0)
    assert (graded.response.last_text, graded.stop_condition) == ("Done.", "stop")
    assert graded.inspect_info == {"match": {"value": 1}}
    assert graded.sample["target"] == "Done."


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("exit", "its process ended with exit code 3"),
        ("die", "its process ended with exit code -9"),
        ("raise", "ValueError: it broke"),
        ("not JSON", "Out of range float values"),
        ("part", "before its record was complete"),
        ("huge", "more bytes than the limit of 100,000"),
    ],
)
async def test_failed_process_fails_only_its_rollout(agent_of, do, reason):
    agent = await agent_of(largest_episode_mb=100_000 / 2**20)
    failed, good = await asyncio.gather(played(agent, do=do), played(agent), return_exceptions=True)
    assert isinstance(failed, EnvironmentFailed)
    assert reason in str(failed)
    assert good.reward == 1.0


@pytest.mark.parametrize(
    ("do", "reason"), [("no worker", "ended with exit code -9"), ("stopped worker", "sent nothing for 1 s")]
)
async def test_lost_worker_is_replaced(agent_of, monkeypatch, do, reason):
    monkeypatch.setattr("responses_api_agents.verifiers_agent.link.END_S", 0.2)
    agent = await agent_of(silence_timeout_s=1.0 if do == "stopped worker" else PATIENCE_S)
    with pytest.raises(ServerLost, match=reason):
        await played(agent, do=do)
    agent.config.silence_timeout_s = PATIENCE_S
    assert (await played(agent)).reward == 1.0


async def test_output_of_a_sample_is_not_a_message(agent_of):
    assert (await played(await agent_of(), do="flood")).reward == 1.0


async def test_cancelled_and_late_samples_are_killed(agent_of, tmp_path):
    agent = await agent_of()
    for name in ("cancelled", "late"):
        file = tmp_path / name
        running = asyncio.create_task(played(agent, do="hang", file=str(file)))
        await until(lambda file=file: file.exists() and file.read_text())
        process = Path("/proc") / file.read_text()
        if name == "cancelled":
            running.cancel()
            agent.config.timeout_s = 1.0
        else:
            with pytest.raises(RolloutTimedOut, match="within 1 s"):
                await running
        await until(lambda process=process: not process.exists())
    agent.config.timeout_s = PATIENCE_S
    assert (await played(agent)).reward == 1.0


@pytest.mark.parametrize(
    ("start", "kind", "reason"),
    [
        ("unusable", EnvironmentFailed, "no task"),
        ("exit", ServerLost, "exit code 4"),
        ("silent", ServerLost, "sent nothing for 1 s"),
    ],
)
async def test_failed_start_fails_the_rollout(agent_of, start, kind, reason):
    agent = await agent_of(f"stub?start={start}", start_timeout_s=1.0 if start == "silent" else PATIENCE_S)
    with pytest.raises(kind, match=reason):
        await played(agent)


@pytest.mark.parametrize(
    ("kind", "expected", "text"),
    [
        ("Unscored", EnvironmentFailed, "inspect: Unscored: why"),
        ("SampleError", EnvironmentFailed, "inspect: SampleError: why"),
        ("TimeoutError", RolloutTimedOut, "inspect: TimeoutError: why"),
    ],
)
async def test_sample_without_a_score_has_no_reward(agent_of, kind, expected, text):
    trace = {"ok": False, "errors": [{"type": kind, "message": "why"}], "rewards": {}}
    with pytest.raises(expected, match=text):
        await played(await agent_of(), trace=trace)


async def test_roles_have_their_own_model(agent_of):
    agent = await agent_of(model_roles={"grader": {"type": "responses_api_models", "name": "policy_model"}})
    assert (await played(agent, do="grade")).reward == 1.0
    with pytest.raises(EnvironmentFailed, match="KeyError: 'grader'"):
        await played(await agent_of(), do="grade")


async def test_row_of_another_task_is_rejected(agent_of):
    with pytest.raises(InvalidTask, match="plays the task 'stub', but the row is of 'other'"):
        await run(await agent_of(), inspect_task="other?size=1", sample={})


def scores(**values):
    return {name: SimpleNamespace(value=value, reason="grader_failed") for name, value in values.items()}


def test_first_or_named_score_is_the_reward():
    assert reward_of(scores(a="C", b="I"), None) == ("a", 1.0)
    assert reward_of(scores(a="C", b="P"), "b") == ("b", 0.5)
    assert reward_of(scores(a={"x": 1, "y": 0.25}), "a.y") == ("a.y", 0.25)
    values = ["C", "P", "I", "N", True, 3, "0.5", "yes", "No", "nan", float("inf"), "fine", [1], None]
    numbers = [1.0, 0.5, 0.0, 0.0, 1.0, 3.0, 0.5, 1.0, 0.0, None, None, None, None, None]
    assert [number_of(value) for value in values] == numbers
    for given, wanted, reason in (
        ({}, None, "no scorer has scored the sample"),
        (scores(a={"x": 1}), None, "Set `score` to one of a.x"),
        (scores(a=1), "b", "Set `score` to one of a"),
        (scores(a=float("nan")), None, r"nan \(grader_failed\), not a number"),
    ):
        with pytest.raises(ValueError, match=reason):
            reward_of(given, wanted)


def test_rows_are_the_samples_of_the_task(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", "stub?size=2", python=PYTHON)))
    assert [row["sample"]["id"] for row in rows] == [0, 1]
    assert rows[1]["responses_create_params"] == {"input": [{"type": "message", "content": "1?", "role": "user"}]}
    for arguments, reason in (
        ({"task": "stub?size=0"}, "has no tasks"),
        ({"task": "stub?start=unusable"}, "no task"),
        ({"task": "?size=1"}, "expected the name"),
        ({"task": "stub", "split": "test"}, "have no splits"),
    ):
        with pytest.raises(DataError, match=reason):
            prepare(tmp_path / "none.jsonl", **arguments, python=PYTHON)


def test_file_of_the_task_is_found(tmp_path):
    demo = "responses_api_agents/inspect_agent/demo/sums.py@sums"
    sent = InspectPlace(task=f"{demo}?size=3", score="match").first_line(0)
    path, _, name = sent["task"].partition("@")
    assert (os.path.isabs(path), name, sent["args"], sent["score"]) == (True, "sums", {"size": 3}, "match")
    with pytest.raises(ValidationError):
        InspectPlace(task="a?b=1&b.c=2")


async def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition has not become true"
        await asyncio.sleep(0.02)

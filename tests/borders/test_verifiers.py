"""verifiers: episodes of the real package in its own interpreter (`make borders-verifiers`), with a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import PrivateAttr

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    EnvironmentFailed,
    InvalidTask,
    ModelFailed,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    ServerLost,
    SimpleResponsesAPIModel,
)
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import connected_server, run, serving
from responses_api_agents.verifiers_agent.app import VerifiersAgent
from responses_api_agents.verifiers_agent.link import MARK
from responses_api_agents.verifiers_agent.prepare import prepare

REPOSITORY = Path(__file__).parents[2]
TASKSETS = Path(__file__).with_name("verifiers_tasksets")
HAS_VERIFIERS = "from importlib.util import find_spec; raise SystemExit(find_spec('verifiers') is None)"
PYTHON = os.environ.get("NEMO_GYM_VERIFIERS_PYTHON") or str(REPOSITORY / ".venv-verifiers/bin/python")
PATIENCE_S = 300.0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(PYTHON).is_file() or subprocess.run([PYTHON, "-c", HAS_VERIFIERS], check=False).returncode != 0,
        reason="no Python with verifiers: run `make borders-verifiers`, or set NEMO_GYM_VERIFIERS_PYTHON",
    ),
]
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}


class ScriptedModel(SimpleResponsesAPIModel):
    """A model whose turns a function of the messages decides: a text, or calls as (name, arguments)."""

    config: BaseResponsesAPIModelConfig
    _script: Callable[[list], object] = PrivateAttr()

    async def responses(self, body: dict) -> object:
        raise NotImplementedError

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        said = self._script(body.messages)
        turn = {"content": said} if isinstance(said, str) else {"content": None, "tool_calls": [
            {"id": f"call_{len(body.messages)}_{at}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for at, (name, arguments) in enumerate(said)
        ]}  # fmt: skip
        message = {"role": "assistant", **turn, **TOKENS}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if isinstance(said, str) else "tool_calls"}
        return NeMoGymChatCompletion(id="c", choices=[choice], created=0, model="policy", usage=usage)


def in_order(*turns):
    """Return a script: the first turn for the first answer of a conversation, and so on."""
    return lambda messages: turns[sum(message["role"] == "assistant" for message in messages)]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(TASKSETS), os.environ.get("PYTHONPATH")])))


def agent_of(taskset, script, **settings):
    model = connected_server(ScriptedModel, {"name": "policy_model"})
    model._script = script
    place = {"type": "responses_api_models", "name": "policy_model"}
    about = {"name": "agent", "model_server": place, "taskset": taskset, "python": PYTHON}
    return connected_server(VerifiersAgent, {**about, **settings}, servers=[model])


def rows_of(folder, taskset, **named):
    return list(read_rows(prepare(folder / "rows.jsonl", taskset, python=PYTHON, **named)))


async def rows(folder, taskset, **named):
    return await asyncio.to_thread(rows_of, folder, taskset, **named)


def texts(items):
    return [
        item.content if isinstance(item.content, str) else item.content[0].text
        for item in items
        if item.type == "message"
    ]


async def test_single_turns_are_scored_by_several_functions(tmp_path):
    given = await rows(tmp_path, "sums_v1?size=2")
    assert [row["task"]["answer"] for row in given] == [0, 2]
    assert [item["role"] for item in given[0]["responses_create_params"]["input"]] == ["system", "user"]
    agent = agent_of("sums_v1?size=2", lambda messages: "2")
    async with serving(agent):
        wrong, right = await asyncio.gather(*(run(agent, **row) for row in given))
    assert (right.reward, right.right, right.short, right.length) == (1.5, 1.0, 1.0, 1.0)
    assert right.reward_components == {"right": 1.0, "short": 0.5}
    assert (wrong.reward, wrong.right, wrong.stop_condition) == (0.5, 0.0, "agent_completed")
    assert texts(right.response.output) == ["2"]
    assert right.response.usage.output_tokens == 2
    assert right.response.output[-1].generation_token_ids == [3]
    assert "traces" not in right.model_dump()


async def test_tools_of_a_rollout_act_on_its_own_state():
    script = in_order(
        [("price", {"fruit": "apple"}), ("price", {"fruit": "pear"})], [("buy", {"fruit": "apple"})], "Done."
    )
    row = {"taskset": "shop_v1", "task": {"prompt": "Buy the cheaper of apple and pear."}}
    agent = agent_of("shop_v1", script)
    async with serving(agent):
        graded = await asyncio.gather(*(run(agent, **row) for _ in range(3)))
    for each in graded:
        assert (each.reward, each.cheapest) == (1.0, 1.0)
        types = [item.type for item in each.response.output]
        assert types == [*["function_call"] * 2, *["function_call_output"] * 2, "function_call",
                         "function_call_output", "message"]  # fmt: skip
        assert [item.output for item in each.response.output[2:4]] == ["3", "5"]
        assert [tool["name"] for tool in each.model_dump()["response"]["tools"]] == ["buy", "price"]


async def test_engine_plays_the_user_for_several_turns(tmp_path):
    given = await rows(tmp_path, "guess_v1", count=4)
    assert [row["task"]["number"] for row in given] == [3, 4, 5, 6]
    agent = agent_of("guess_v1", in_order("1", "9", "6"))
    async with serving(agent):
        graded = await run(agent, **given[3])
        with pytest.raises(EnvironmentFailed, match="invalid literal"):
            await run(agent_of_same(agent, lambda messages: "no number"), **given[3])
    assert graded.reward == pytest.approx(1 / 3)
    assert texts(graded.response.output) == ["1", "higher", "9", "lower", "6"]


def agent_of_same(agent, script):
    """Return the same agent after its model has another script."""
    agent.server_client._servers["policy_model"]._script = script
    return agent


async def test_all_attempts_and_branches_are_kept():
    answers = iter(["7", "2", "2"])
    env = {"id": "best-of-n", "n": 3}
    agent = agent_of("sums_v1", lambda messages: next(answers), env=env)
    async with serving(agent):
        graded = await run(agent, taskset="sums_v1", task={"prompt": "What is 1 + 1?", "answer": 2})
    assert graded.reward == pytest.approx((0.5 + 1.5 + 1.5) / 3)
    assert graded.right == pytest.approx(2 / 3)
    assert (graded.best, graded.pass_at_n) == (pytest.approx(2 / 3), 1.0)
    assert [trace["reward"] for trace in graded.traces] == [0.5, 1.5, 1.5]
    said = [branch["output"] for trace in graded.traces for branch in trace["branches"]]
    assert [items[0]["content"][0]["text"] for items in said] == ["7", "2", "2"]
    assert all(items[0]["generation_token_ids"] == [3] for items in said)


async def test_simulated_user_is_not_graded():
    def script(messages):
        is_user = (
            "user" in messages[0]["content"]
            and messages[0]["role"] == "system"
            and "Answer" not in messages[0]["content"]
        )
        turns = sum(message["role"] == "assistant" for message in messages)
        return ["What is 1 + 1?", "###STOP###"][turns] if is_user else "2"

    agent = agent_of("sums_v1", script, env={"id": "user-sim", "done_marker": "###STOP###"})
    async with serving(agent):
        task = {"prompt": "Ask for a sum.", "system_prompt": "Answer with a number.", "answer": 2}
        graded = await run(agent, taskset="sums_v1", task=task)
    assert (graded.reward, graded.user_turns) == (1.5, 2.0)
    assert texts(graded.response.output) == ["2"]
    assert {trace["agent"]: trace["trainable"] for trace in graded.traces} == {"user": False, "assistant": True}


async def test_bash_harness_runs_commands_of_the_model():
    script = in_order([("bash", {"command": "echo $((40 + 2))"})], "42")
    agent = agent_of("sums_v1", script, env={"agent": {"harness": {"id": "bash"}}})
    async with serving(agent):
        graded = await run(agent, taskset="sums_v1", task={"prompt": "What is 21 + 21?", "answer": 42})
    assert graded.reward == 1.5
    assert graded.response.output[1].output.strip() == "42"


def fault(name, **more):
    return {"taskset": "faults_v1", "task": {"prompt": "Say something.", "fault": name, **more}}


async def test_faults_fail_one_rollout_and_lose_no_other():
    agent = agent_of("faults_v1", lambda messages: "Hello.", largest_episode_mb=1)
    async with serving(agent):
        expected = {
            "raises": (EnvironmentFailed, "TaskError.*the scorer is broken"),
            "is not finite": (EnvironmentFailed, "not valid JSON"),
            "is huge": (EnvironmentFailed, "the limit is 1,048,576"),
        }
        *failures, flooded, good = await asyncio.gather(
            *(run(agent, **fault(name)) for name in [*expected, "floods", "nothing"]), return_exceptions=True
        )
        assert (flooded.reward, good.reward) == (1.0, 1.0)
        for failure, (kind, text) in zip(failures, expected.values(), strict=True):
            with pytest.raises(kind, match=text):
                raise failure
        with pytest.raises(InvalidTask, match="not a task of this taskset"):
            await run(agent, taskset="faults_v1", task={"prompt": "Say something."})
        with pytest.raises(InvalidTask, match="plays the taskset 'faults_v1'"):
            await run(agent, taskset="sums_v1", task={})
        with pytest.raises(ServerLost, match="ended with exit code 7") as lost:
            await run(agent, **fault("dies"))
        assert (lost.value.tier, lost.value.may_retry) == ("environment", True)
        assert (await run(agent, **fault("nothing"))).reward == 1.0


async def test_cancelled_episode_ends_in_the_worker(tmp_path):
    agent = agent_of("faults_v1", lambda messages: "Hello.")
    async with serving(agent):
        ended = tmp_path / "cancelled"
        running = asyncio.create_task(run(agent, **fault("waits", file=str(ended))))
        await until(ended.with_suffix(".begun").exists)
        running.cancel()
        await until(ended.exists)


async def test_worker_that_hangs_is_replaced():
    agent = agent_of("faults_v1", lambda messages: "Hello.", silence_timeout_s=60.0)
    async with serving(agent):
        with pytest.raises(ServerLost, match="sent nothing for 60 s"):
            await run(agent, **fault("hangs"))
        mark = agent._workers._worker._mark
        assert (await run(agent, **fault("nothing"))).reward == 1.0
    assert not marked_processes(mark)


async def test_failures_of_the_model_are_its_own():
    def script(messages):
        raise ModelFailed("no weights")

    agent = agent_of("sums_v1", script)
    async with serving(agent):
        with pytest.raises(ModelFailed, match="no weights"):
            await run(agent, taskset="sums_v1", task={"prompt": "What is 1 + 1?", "answer": 2})
        with pytest.raises(EnvironmentFailed, match="'none_v1' not found"):
            await run(agent_of("none_v1", script), taskset="none_v1", task={})


def test_taskset_in_the_working_folder_is_run_and_listed(workplace):
    env = {"NEMO_GYM_VERIFIERS_PYTHON": PYTHON}
    shutil.copy(REPOSITORY / "responses_api_agents/verifiers_agent/demo/sums_v1.py", workplace.folder / "my_sums.py")
    chosen = ["--from", "verifiers:my_sums?size=2", "--split", "test"]
    finished = workplace.run(
        "ng", "eval", "run", *chosen, "--model-type", "sample_model", "--output", "results/sums.jsonl", **env
    )
    assert finished.code == 0, finished.err
    rollouts = list(read_rows(workplace.folder / "results/sums.jsonl"))
    assert sorted(row["task"]["answer"] for row in rollouts) == [200, 202]
    assert all(row["response"]["output"] for row in rollouts)
    listed = workplace.run("ng", "list", "environments", *chosen, "--json", **env)
    assert [task["task.answer"] for task in json.loads(listed.out)] == [200, 202]


async def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition has not become true"
        await asyncio.sleep(0.1)


def marked_processes(mark):
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [path.parent.name] if f"{MARK}={mark}".encode() in path.read_bytes() else []
        except OSError:
            continue
    return found

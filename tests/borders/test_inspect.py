"""Inspect: samples of the real package in its own interpreter (`make borders-inspect`), with a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nemo_gym import DataError, EnvironmentFailed, InvalidTask, ModelFailed, RolloutTimedOut
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import connected_server, run, serving
from responses_api_agents.inspect_agent.app import InspectAgent
from responses_api_agents.inspect_agent.prepare import prepare
from tests.borders.test_verifiers import REPOSITORY, ScriptedModel, in_order, marked_processes, texts, until

HAS_INSPECT = "from importlib.util import find_spec; raise SystemExit(find_spec('inspect_ai') is None)"
PYTHON = os.environ.get("NEMO_GYM_INSPECT_PYTHON") or str(REPOSITORY / ".venv-inspect/bin/python")
PATIENCE_S = 300.0
TASKS = Path(__file__).with_name("inspect_tasks.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(PYTHON).is_file() or subprocess.run([PYTHON, "-c", HAS_INSPECT], check=False).returncode != 0,
        reason="no Python with inspect_ai: run `make borders-inspect`, or set NEMO_GYM_INSPECT_PYTHON",
    ),
]


def agent_of(task, script, *, judge=None, **settings):
    models = {"policy_model": script, **({"judge_model": judge} if judge else {})}
    servers = []
    for name, answers in models.items():
        servers.append(connected_server(ScriptedModel, {"name": name}))
        servers[-1]._script = answers
    places = {name: {"type": "responses_api_models", "name": name} for name in models}
    about = {"name": "agent", "model_server": places["policy_model"], "task": f"{TASKS}@{task}", "python": PYTHON}
    roles = {"model_roles": {"grader": places["judge_model"]}} if judge else {}
    return connected_server(InspectAgent, {**about, **roles, **settings}, servers=servers)


async def played(agent, sample, task):
    return await run(agent, inspect_task=f"{TASKS}@{task}", sample=sample)


async def rows(folder, task):
    path = await asyncio.to_thread(prepare, folder / "rows.jsonl", f"{TASKS}@{task}", python=PYTHON)
    return list(read_rows(path))


def submit(answer):
    return [("submit", {"answer": answer})]


async def test_tools_and_scores_of_a_sample_become_a_rollout(tmp_path):
    (row,) = await rows(tmp_path, "shop")
    assert (row["sample"]["target"], row["sample"]["metadata"]) == ("apple", {"shop": {"open": True}})
    assert "apple" not in str(row["responses_create_params"]).replace("of apple and pear", "")
    script = in_order([("price", {"fruit": "fig"}), ("price", {"fruit": "pear"})], [("buy", {"fruit": "apple"})],
                      submit("apple"))  # fmt: skip
    agent = agent_of("shop", script)
    async with serving(agent):
        graded = await asyncio.gather(*(run(agent, **row) for _ in range(3)))
    for each in graded:
        assert (each.reward, each.match) == (1.0, 1.0)
        assert each.inspect_info["bought"]["explanation"] == "bought ['apple']"
        types = [item.type for item in each.response.output]
        assert types == [*["function_call"] * 2, *["function_call_output"] * 2, *["function_call",
                         "function_call_output"] * 2]  # fmt: skip
        assert [item.output for item in each.response.output[2:4]] == ["Error: figs are sold out", "5"]
        assert each.response.output[1].generation_token_ids == [3]
        assert [tool["name"] for tool in each.model_dump()["response"]["tools"]] == ["price", "buy", "submit"]
        assert texts(each.responses_create_params.input) == ["You buy fruit.", row["sample"]["input"]]


async def test_wrong_answer_earns_nothing(tmp_path):
    (row,) = await rows(tmp_path, "shop")
    agent = agent_of("shop", in_order([("buy", {"fruit": "pear"})], submit("pear")))
    async with serving(agent):
        graded = await run(agent, **row)
    assert (graded.reward, graded.match, graded.is_truncated) == (0.0, 0.0, False)


async def test_score_with_several_values_needs_its_name():
    sample = {"input": "Say four.", "target": "four"}
    agent = agent_of("several", lambda messages: "four", score="both.right")
    async with serving(agent):
        graded = await played(agent, sample, "several")
    assert (graded.reward, graded.reward_components) == (1.0, {"both.right": 1.0})
    assert graded.model_dump()["both.brief"] == 0.25
    unnamed = agent_of("several", lambda messages: "four")
    async with serving(unnamed):
        with pytest.raises(EnvironmentFailed, match=r"Set `score` to one of both.right, both.brief"):
            await played(unnamed, sample, "several")


async def test_limit_of_the_task_marks_the_ending():
    agent = agent_of("limited", lambda messages: [("price", {"fruit": "apple"})])
    async with serving(agent):
        graded = await played(agent, {"input": "Go.", "target": "x"}, "limited")
    assert (graded.reward, graded.is_truncated, graded.stop_condition) == (0.0, True, "message")


async def test_judge_has_its_own_model_server():
    agent = agent_of("judged", lambda messages: "Ada", judge=lambda messages: "GRADE: C")
    async with serving(agent):
        graded = await played(agent, {"input": "Who?", "target": "Ada"}, "judged")
    assert (graded.reward, texts(graded.response.output)) == (1.0, ["Ada"])
    assert graded.response.usage.output_tokens == 2


def fault(name, **more):
    return {"input": "Go.", "metadata": {"fault": name, **more}}


async def test_faults_fail_one_rollout_and_lose_no_other():
    agent = agent_of("faults", lambda messages: "Hello.", largest_episode_mb=1)
    async with serving(agent):
        expected = {
            "raises": "the solver is broken",
            "scorer raises": "the scorer is broken",
            "dies": "ended with exit code 7",
            "is unscored": r"nan \(grader_failed\), not a number",
            "is a word": "'splendid', not a number",
            "is a list": r"\[1, 0\], not a number",
            "is huge": "more bytes than the limit of 1,048,576",
        }
        *failures, flooded, good = await asyncio.gather(
            *(played(agent, fault(name), "faults") for name in [*expected, "floods", "nothing"]),
            return_exceptions=True,
        )
        assert (flooded.reward, good.reward) == (1.0, 1.0)
        for failure, text in zip(failures, expected.values(), strict=True):
            with pytest.raises(EnvironmentFailed, match=text):
                raise failure
        with pytest.raises(Exception, match="not asked"):
            await played(agent, fault("asks nothing"), "faults")
        with pytest.raises(InvalidTask, match="not one of this task"):
            await played(agent, {"target": 3}, "faults")
        with pytest.raises(InvalidTask, match="docker is not started"):
            await played(agent, {**fault("nothing"), "sandbox": {"type": "docker"}}, "faults")
        mark = agent._workers._worker._mark
    assert not marked_processes(mark)


async def test_cancelled_sample_is_killed_and_others_go_on(tmp_path):
    agent = agent_of("faults", lambda messages: "Hello.")
    async with serving(agent):
        begun = tmp_path / "begun"
        running = asyncio.create_task(played(agent, fault("blocks", file=str(begun)), "faults"))
        await until(begun.exists)
        assert (await played(agent, fault("nothing"), "faults")).reward == 1.0
        running.cancel()
        mark = agent._workers._worker._mark
        await until(lambda: len(marked_processes(mark)) == 1)


async def test_time_limit_is_a_timeout():
    agent = agent_of("faults?time_limit=1", lambda messages: "Hello.")
    async with serving(agent):
        with pytest.raises(RolloutTimedOut, match="the limit time ended the sample"):
            await played(agent, fault("waits"), "faults")


async def test_failures_of_the_model_are_its_own(tmp_path):
    def script(messages):
        raise ModelFailed("no weights")

    agent = agent_of("several", script)
    async with serving(agent):
        with pytest.raises(ModelFailed, match="no weights"):
            await played(agent, {"input": "Say four."}, "several")


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("boxed", "the sandbox docker, which is not started here"),
        ("none", "worker of .*none"),
        ("faults?size=3", "does not have the argument size"),
    ],
)
async def test_unusable_task_is_refused_with_the_reason(tmp_path, task, reason):
    with pytest.raises(DataError, match=reason):
        await rows(tmp_path, task)


def test_task_in_the_working_folder_is_run_and_listed(workplace):
    env = {"NEMO_GYM_INSPECT_PYTHON": PYTHON}
    shutil.copy(REPOSITORY / "responses_api_agents/inspect_agent/demo/sums.py", workplace.folder / "my_sums.py")
    chosen = ["--from", "inspect:my_sums.py@sums?size=2"]
    finished = workplace.run(
        "ng", "eval", "run", *chosen, "--model-type", "sample_model", "--output", "results/sums.jsonl", **env
    )
    assert finished.code == 0, finished.err
    rollouts = list(read_rows(workplace.folder / "results/sums.jsonl"))
    assert sorted(row["sample"]["target"] for row in rollouts) == ["0", "2"]
    assert all(row["response"]["output"] for row in rollouts)
    listed = workplace.run("ng", "list", "environments", *chosen, "--json", **env)
    assert [task["sample.target"] for task in json.loads(listed.out)] == ["0", "2"]

"""Metrics of a run: asked of each agent, written beside the results, and never a reason to lose these."""

from __future__ import annotations

import orjson
import pytest

from nemo_gym.errors import DataError
from nemo_gym.rollouts.aggregate import aggregate


def named(agent: str) -> dict[str, dict[str, str]]:
    return {"agent_ref": {"name": agent}}


async def test_the_metrics_of_each_agent_are_written(run_tasks, make_task, client):
    run = await run_tasks([make_task(0, earns=1.0), make_task(1, earns=0.0), make_task(2, act="crash")])
    metrics = await aggregate(client, run.files)
    assert metrics == [
        {
            "agent_ref": {"name": "sound"},
            "agent_metrics": {"mean/reward": 0.5},
            "key_metrics": {"mean/reward": 0.5},
            "group_level_metrics": [],
        }
    ]
    assert orjson.loads(run.files.metrics.read_bytes()) == metrics


async def test_agents_are_sent_their_own_rollouts_without_the_texts(run_tasks, make_task, client, agent):
    attached = {"ng_model_call_capture": {}, "ng_agent_observations": {}, "ng_trajectory": {}, "_ng_token_capture": {}}
    run = await run_tasks([make_task(0, **attached)])
    await aggregate(client, run.files)
    ((row,),) = agent.told()["bodies_of_metrics"]
    assert row == {
        "number": 0,
        "reward": 1.0,
        "agent_ref": {"type": "responses_api_agents", "name": "sound"},
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "response": {"usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}},
    }


@pytest.mark.parametrize("response", ["null", '"a text"', "{}", '{"usage": null}'])
async def test_a_response_without_usage_is_left_out(run_tasks, make_task, client, agent, response):
    run = await run_tasks([make_task(0, act="answer", bytes=f'{{"reward": 1, "response": {response}}}')])
    await aggregate(client, run.files)
    ((row,),) = agent.told()["bodies_of_metrics"]
    assert "response" not in row


@pytest.mark.parametrize(("name", "words"), [("mute", "answered 404"), ("sick", "answered 500: division by zero")])
async def test_an_agent_that_gives_no_metrics_costs_nobody_elses(run_tasks, make_task, client, name, words):
    run = await run_tasks([make_task(0, **named(name)), make_task(1)])
    before = run.files.results.read_bytes()
    with pytest.raises(DataError) as error:
        await aggregate(client, run.files)
    assert f"{name} gave no metrics: /aggregate_metrics {words}" in str(error.value)
    assert f"the rollouts are kept in {run.files.results}" in str(error.value)
    assert run.files.results.read_bytes() == before
    assert [entry["agent_ref"] for entry in orjson.loads(run.files.metrics.read_bytes())] == [{"name": "sound"}]


async def test_metrics_of_an_earlier_run_do_not_stand_beside_results_that_have_none(run_tasks, make_task, client):
    run = await run_tasks([make_task(0, **named("mute"))])
    run.files.metrics.write_text("[]")
    with pytest.raises(DataError):
        await aggregate(client, run.files)
    assert not run.files.metrics.exists()


async def test_an_agent_that_is_gone_is_told_too(run_tasks, make_task, mortal_agent):
    mortal_client = mortal_agent.client()
    run = await run_tasks([make_task(0)], client=mortal_client)
    mortal_agent.process.kill()
    mortal_agent.process.wait()
    with pytest.raises(DataError, match=r"sound gave no metrics: server 'sound': .*Connection refused"):
        await aggregate(mortal_client, run.files)
    await mortal_client.aclose()

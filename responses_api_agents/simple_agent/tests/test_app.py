"""The plain agent's routes: a rollout from row to reward, and the cookies of its calls."""

import pytest

from nemo_gym.testing import call, make_server, run, serving
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
from responses_api_agents.simple_agent.tests.arena import ARENA, POLICY, Policy, agent_on


async def test_graded_row_keeps_all_fields_of_the_row(arena):
    row = {"responses_create_params": {"input": "Play.", "metadata": {"a": "b"}}, "extra": {"deep": [None, 1]}}
    graded = await run(agent_on(arena), **row, _ng_task_index=4)
    assert graded.reward == 1.0
    assert (graded.extra, graded._ng_task_index) == ({"deep": [None, 1]}, 4)
    assert graded.responses_create_params.metadata == {"a": "b"}
    # Only the fields that the row sets, without our defaults.
    assert graded.responses_create_params.model_fields_set == {"input", "metadata"}


async def test_each_rollout_has_and_closes_its_session(arena):
    agent = agent_on(arena, *[call("score", points=1), "Done."] * 2)
    async with serving(agent):
        assert [(await run(agent)).reward for _ in range(2)] == [1.0, 1.0]
        assert len(arena.sessions) == 0


async def test_cookies_of_both_servers_are_separate(arena):
    policy = make_server(Policy, name="policy_model", cookies_seen=[], sessions_seen=[])
    agent = make_server(SimpleAgent, servers=[arena, policy], resources_server=ARENA)
    assert (await run(agent)).reward == 1.0
    assert arena.cookies_seen == [set(), {"Arena___arena"}, {"Arena___arena"}]
    assert policy.cookies_seen == [set(), {"Policy___policy_model"}]
    assert len(set(policy.sessions_seen)) == 1


@pytest.mark.parametrize("row", [{"_ng_rollout_id": "r-1"}, {"_ng_task_index": 7, "_ng_rollout_index": 2}])
async def test_every_call_has_the_rollout_id(arena, row):
    await run(agent_on(arena), **row)
    assert arena.rollouts_seen == [row.get("_ng_rollout_id", "7-2")] * 3


async def test_skipped_verification_is_marked_and_closes_session(arena):
    agent = agent_on(arena, skip_verification=True, skip_verification_reward=0.5)
    async with serving(agent):
        graded = await run(agent, extra=1)
        assert (graded.reward, graded.verification_skipped, graded.extra) == (0.5, True, 1)
        assert graded.response.output_text == "Done."
        assert len(arena.sessions) == 0
    assert len(arena.rollouts_seen) == 2


async def test_responses_route_returns_trajectory_and_session_cookie(arena):
    agent = agent_on(arena)
    async with serving(agent) as client, serving(arena) as outside:
        seeded = await outside.post("/seed_session", json={})
        cookies = {**seeded.cookies, "other": "1"}
        header = "; ".join(f"{name}={value}" for name, value in cookies.items())
        answered = await client.post("/v1/responses", json={"input": "Play."}, headers={"cookie": header})
        assert [item["type"] for item in answered.json()["output"]] == [
            "function_call",
            "function_call_output",
            "message",
        ]
        assert answered.cookies["Arena___arena"].strip('"') == seeded.cookies["Arena___arena"]
        assert "SimpleAgent___agent" in answered.cookies
        row = {"responses_create_params": {"input": []}, "response": answered.json()}
        assert (await outside.post("/verify", json=row)).json()["reward"] == 1.0


async def test_metrics_come_from_the_resources_server(arena):
    rows = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]}
    async with serving(agent_on(arena)) as client:
        assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"]["mean/reward"] == 0.5
    async with serving(agent_on(arena, skip_verification=True)) as client:
        with pytest.warns(RuntimeWarning, match="verification was skipped"):
            assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"] == {}


@pytest.mark.parametrize(
    "settings", [{"max_steps": 0}, {"tool_faults": "ignore"}, {"resources_server": {"name": "x"}}]
)
def test_invalid_settings_are_rejected(settings):
    given = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "a", "model_server": POLICY}
    with pytest.raises(ValueError, match=next(iter(settings))):
        SimpleAgentConfig.model_validate({"resources_server": ARENA, **given, **settings})

"""Rollouts from seed to close: the model's input, the graded row and failures."""

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from nemo_gym import (
    BaseVerifyRequest,
    EnvironmentFailed,
    ModelFailed,
    NeMoGymResponse,
    ServerCallError,
    SimpleResourcesServer,
    current_rollout_id,
)
from nemo_gym.jsonl import JsonObject
from nemo_gym.testing import FakeModel, call, make_server, reply, run, serving
from responses_api_agents.aviary_agent.app import AviaryAgent

CAGE = {"type": "resources_servers", "name": "cage"}
TOOLS = [
    {"type": "function", "name": "peck", "description": "Peck.", "parameters": {"type": "object"}, "strict": False}
]


class Cage(SimpleResourcesServer):
    """An Aviary server with three steps of 0.5 each; the row and the texts trigger special cases."""

    asked: list[tuple[str, JsonObject]] = []  # noqa: RUF012
    rollouts: list[str | None] = []  # noqa: RUF012

    def setup_webserver(self) -> FastAPI:
        app = self.new_app()
        for path in ("/seed_session", "/step", "/verify", "/close"):
            app.post(path)(self._answer)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        raise NotImplementedError("answered below")

    async def _answer(self, request: Request) -> JSONResponse:
        body, path = await request.json(), request.url.path
        self.asked.append((path, body))
        self.rollouts.append(current_rollout_id())
        if path == "/seed_session":
            if body.get("odd"):
                return JSONResponse({"env_id": "e1"})
            obs = [{"type": "message", "role": "user", "content": "Begin."}]
            return JSONResponse({"env_id": "e1", "obs": obs, "tools": TOOLS})
        if path == "/step":
            return JSONResponse(self._step(body["action"]))
        if path == "/verify":
            return JSONResponse({**body, "reward": 0.5 * len(self.steps), "transitions": self.steps})
        return JSONResponse({"closed": True})

    def _step(self, action: list[JsonObject]) -> JsonObject:
        if any("explode" in str(item) for item in action):
            raise RuntimeError("bang")
        calls = [item for item in action if item["type"] == "function_call"]
        obs = [{"type": "function_call_output", "call_id": each["call_id"], "output": "pecked"} for each in calls]
        obs += [] if calls else [{"type": "message", "role": "user", "content": "Peck."}]
        return {"obs": obs, "reward": 0.5, "done": len(self.steps) == 3}

    @property
    def steps(self) -> list[list[JsonObject]]:
        return [body["action"] for path, body in self.asked if path == "/step"]

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@pytest.fixture
def cage():
    built = make_server(Cage, name="cage")
    built.asked, built.rollouts = [], []
    return built


def agent_on(server: Cage, *replies: object, **settings: object) -> AviaryAgent:
    model = FakeModel(replies or [call("peck")])
    return make_server(
        AviaryAgent, model=model, servers=[server], **{"resources_server": CAGE, "name": "agent", **settings}
    )


def requests_of(agent: AviaryAgent) -> list[JsonObject]:
    """Return the model's requests, turn by turn."""
    return agent.server_client._connections.model.requests


def changed(response: NeMoGymResponse, **fields: object) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate({**response.model_dump(), **fields})


async def test_rollout_runs_from_seed_to_close(cage):
    graded = await run(agent_on(cage), extra={"deep": [None]})
    assert graded.reward == 1.5
    assert len(graded.transitions) == 3
    assert graded.extra == {"deep": [None]}
    assert cage.paths == ["/seed_session", "/step", "/step", "/step", "/verify", "/close"]
    assert cage.asked[0][1]["extra"] == {"deep": [None]}
    assert cage.asked[-1][1] == {"env_id": "e1"}
    assert {body["env_id"] for path, body in cage.asked if path == "/step"} == {"e1"}
    types = [item.type for item in graded.response.output]
    assert types == ["function_call", "function_call_output"] * 3


async def test_model_sees_row_tools_and_observations(cage):
    params = {"input": [{"role": "system", "content": "Rules."}], "temperature": 0.5, "tools": []}
    agent = agent_on(cage, reply("I peck.", call("peck")), "Enough.")
    graded = await run(agent, responses_create_params=params)
    first, second, third = requests_of(agent)
    assert [item["content"] for item in first["input"]] == ["Rules.", "Begin."]
    assert first["tools"] == second["tools"] == TOOLS
    assert {each["temperature"] for each in (first, second, third)} == {0.5}
    assert [item["type"] for item in second["input"][2:]] == ["message", "function_call", "function_call_output"]
    assert third["input"][-1]["content"] == "Peck."
    assert [item.content for item in graded.responses_create_params.input] == ["Rules.", "Begin."]
    assert graded.responses_create_params.tools == TOOLS


async def test_text_input_comes_first(cage):
    agent = agent_on(cage)
    await run(agent, responses_create_params={"input": "Rules."})
    assert [item["content"] for item in requests_of(agent)[0]["input"]] == ["Rules.", "Begin."]


async def test_step_gets_turn_without_reasoning_and_tokens(cage):
    thought = {"type": "reasoning", "id": "r", "summary": []}
    said = {
        **reply("Hm.").output[0].model_dump(),
        "prompt_token_ids": [1, 2],
        "generation_token_ids": [3],
        "generation_log_probs": [-0.1],
    }
    agent = agent_on(cage, changed(reply(), output=[thought, said, call("peck").model_dump()]))
    graded = await run(agent)
    message, wanted = cage.steps[0]
    assert "generation_token_ids" not in message
    assert message["content"][0]["text"] == "Hm."
    assert (wanted["name"], wanted["arguments"]) == ("peck", "{}")
    assert graded.response.output[1].generation_token_ids == [3]


@pytest.mark.parametrize(("max_steps", "steps"), [(1, 1), (2, 2), (3, 3), (None, 3)])
async def test_rollout_ends_after_max_steps(cage, max_steps, steps):
    graded = await run(agent_on(cage, max_steps=max_steps))
    assert (graded.reward, len(cage.steps)) == (0.5 * steps, steps)


async def test_truncated_turn_is_the_last_one(cage):
    cut = changed(reply("I was about to"), incomplete_details={"reason": "max_output_tokens"})
    graded = await run(agent_on(cage, call("peck"), cut))
    assert graded.reward == 1.0
    assert cage.paths[-2:] == ["/verify", "/close"]


async def test_usage_of_all_turns_is_summed(cage):
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    graded = await run(agent_on(cage, changed(reply(call("peck")), usage=usage)))
    assert (graded.response.usage.input_tokens, graded.response.usage.total_tokens) == (30, 36)


async def test_every_call_has_the_rollout_id(cage):
    await run(agent_on(cage), _ng_task_index=4, _ng_rollout_index=2)
    assert set(cage.rollouts) == {"4-2"}


async def test_skipped_verification_uses_configured_reward(cage):
    graded = await run(agent_on(cage, skip_verification=True, skip_verification_reward=0.25))
    assert (graded.reward, graded.verification_skipped) == (0.25, True)
    assert "/verify" not in cage.paths
    assert cage.paths[-1] == "/close"


async def test_failing_step_fails_rollout_and_closes_environment(cage):
    with pytest.raises(EnvironmentFailed, match="bang"):
        await run(agent_on(cage, "explode"))
    assert cage.paths == ["/seed_session", "/step", "/close"]


async def test_failing_model_fails_rollout_and_closes_environment(cage):
    agent = agent_on(cage)
    agent.server_client._connections.model = None
    with pytest.raises(ModelFailed, match="policy_model"):
        await run(agent)
    assert cage.paths == ["/seed_session", "/close"]


async def test_invalid_reply_names_server_and_field(cage):
    with pytest.raises(EnvironmentFailed, match="cage: the reply of /seed_session is not valid: obs"):
        await run(agent_on(cage), odd=True)
    assert cage.paths == ["/seed_session"]


async def test_unreachable_server_fails_the_rollout(cage):
    agent = agent_on(cage, resources_server={**CAGE, "name": "nowhere"})
    agent.server_client._connections.model = None
    with pytest.raises((EnvironmentFailed, ServerCallError), match="nowhere"):
        await run(agent)


async def test_responses_route_returns_the_next_turn(cage):
    async with serving(agent_on(cage, "Hello.")) as client:
        answer = await client.post("/v1/responses", json={"input": "Hi."})
    assert NeMoGymResponse.model_validate(answer.json()).output_text == "Hello."
    assert cage.asked == []


async def test_metrics_come_from_the_resources_server(cage):
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": number, "reward": float(number)} for number in range(2)]
    async with serving(agent_on(cage)) as client:
        metrics = (await client.post("/aggregate_metrics", json={"verify_responses": rows})).json()
    assert metrics["agent_metrics"]["mean/reward"] == 0.5

"""The loop of an agent can be called without its rollout: in its caller's session, and captured as its caller asks."""

from typing import Any

import pytest
from pydantic import Field
from starlette.requests import Request

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    BaseVerifyRequest,
    NeMoGymResponseCreateParamsNonStreaming,
    SessionState,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
    SimpleResponsesAPIModel,
    current_rollout_id,
    tool,
)
from nemo_gym.context.rollout_id import wants_tokens
from nemo_gym.testing import call, make_server, reply, serving
from responses_api_agents.aviary_agent.app import AviaryAgent
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_agents.user_simulation_agent.app import UserSimulationAgent


class Count(SessionState):
    count: int = 0


class Counter(SimpleResourcesServer):
    @tool
    async def count(self, state: Count) -> int:
        """Count."""
        state.count += 1
        return state.count

    async def verify(self, body: BaseVerifyRequest, state: Count) -> float:
        return float(state.count)


class Policy(SimpleResponsesAPIModel):
    """Calls the tool once, and records how its calls are captured."""

    config: BaseResponsesAPIModelConfig
    captured: list[Any] = Field(default_factory=list)

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> object:
        prefixed = "rollout_id" in request.path_params
        self.captured.append((prefixed, wants_tokens(request.scope), current_rollout_id()))
        return reply(call("count")) if len(body.input_items) == 1 else reply("Done.")

    async def chat_completions(self, body: NeMoGymResponseCreateParamsNonStreaming) -> None:
        raise NotImplementedError


def agent_of(kind: type[SimpleResponsesAPIAgent], policy: Policy, counter: Counter) -> SimpleResponsesAPIAgent:
    return make_server(
        kind,
        servers=[counter, policy],
        resources_server={"type": "resources_servers", "name": "counter"},
        model_server={"type": "responses_api_models", "name": "policy"},
    )


@pytest.mark.parametrize("kind", [SimpleAgent, UserSimulationAgent, GymnasiumAgent, AviaryAgent])
@pytest.mark.parametrize(
    ("prefix", "captured"),
    [
        ("", (False, False, None)),
        ("/ng-rollout/3-1", (True, False, "3-1")),
        ("/ng-rollout/3-1/training-token-capture", (True, True, "3-1")),
    ],
)
async def test_loop_passes_on_the_capture_prefix(kind, prefix, captured):
    policy = make_server(Policy, name="policy")
    async with serving(agent_of(kind, policy, make_server(Counter, name="counter"))) as client:
        answered = await client.post(f"{prefix}/v1/responses", json={"input": "Count."})
    assert answered.status_code == 200
    assert set(policy.captured) == {captured}


@pytest.mark.parametrize("kind", [SimpleAgent, UserSimulationAgent])
async def test_loop_uses_and_returns_the_callers_session(kind):
    counter, policy = make_server(Counter, name="counter"), make_server(Policy, name="policy")
    async with serving(agent_of(kind, policy, counter)) as client, serving(counter) as environment:
        seeded = await environment.post("/seed_session", json={})
        header = {"cookie": "; ".join(f"{name}={value}" for name, value in seeded.cookies.items())}
        answered = await client.post("/v1/responses", json={"input": "Count."}, headers=header)
        assert answered.cookies["Counter___counter"].strip('"') == seeded.cookies["Counter___counter"]
        row = {"responses_create_params": {"input": []}, "response": answered.json()}
        assert (await environment.post("/verify", json=row)).json()["reward"] == 1.0

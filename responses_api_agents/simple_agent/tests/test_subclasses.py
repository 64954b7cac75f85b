"""Subclasses of the plain agent that change the answer, the row or the reward."""

import pytest
from fastapi import Request, Response

from nemo_gym import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.jsonl import JsonObject
from nemo_gym.testing import call, reply, run
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentRunRequest, SimpleAgentVerifyResponse
from responses_api_agents.simple_agent.tests.arena import POLICY, agent_on


class Polite(SimpleAgent):
    """A subclass that overrides `responses`."""

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        answered = await super().responses(request, response, body.model_copy(update={"instructions": "Be polite."}))
        return answered.model_copy(update={"model": "polite"})


async def test_run_calls_an_overridden_responses_method(arena):
    agent = agent_on(arena, call("score", points=3), "Thank you.", cls=Polite, model_server=POLICY)
    graded = await run(agent)
    assert (graded.reward, graded.response.model, graded.response.output_text) == (3.0, "polite", "Thank you.")
    assert agent.server_client._connections.model.requests[0]["instructions"] == "Be polite."


class MovedSession(Polite):
    """A subclass that calls the resources server itself and so begins another session."""

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        fresh = await self.server_client.post("arena", "/score", json={"points": 5})
        response.set_cookie("Arena___arena", fresh.cookies["Arena___arena"].value)
        return reply("Moved.")


async def test_cookies_set_by_a_subclass_reach_verify(arena):
    agent = agent_on(arena, cls=MovedSession, model_server=POLICY)
    assert (await run(agent)).reward == 5.0


class OfBodyAlone(SimpleAgent):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> JsonObject:
        return reply(f"To {len(body.input)} items").model_dump()


class OfRequestAndBody(SimpleAgent):
    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> Response:
        answer = Response(reply(f"To {len(body.input)} items").model_dump_json())
        answer.set_cookie("seen", ",".join(request.cookies))
        return answer


@pytest.mark.parametrize("kind", [OfBodyAlone, OfRequestAndBody])
async def test_subclass_may_take_fewer_parameters_and_return_json(arena, kind):
    graded = await run(agent_on(arena, cls=kind, model_server=POLICY))
    assert graded.response.output_text == "To 0 items"


class SecondThoughts(SimpleAgent):
    """A subclass that changes the row before the rollout, and the reward after it."""

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:
        params = body.responses_create_params.model_copy(update={"instructions": "Think twice."})
        graded = await super().run(request, body.model_copy(update={"responses_create_params": params}))
        assert isinstance(graded, SimpleAgentVerifyResponse)
        graded.reward /= 2
        return graded


async def test_subclass_may_change_row_and_reward(arena):
    agent = agent_on(arena, call("score", points=3), "Done.", cls=SecondThoughts, model_server=POLICY)
    graded = await run(agent)
    assert (graded.reward, graded.response.output_text) == (1.5, "Done.")
    assert agent.server_client._connections.model.requests[0]["instructions"] == "Think twice."

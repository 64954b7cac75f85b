"""The plain agent: model and tools in turn until the model answers, then the reward."""

from typing import Any

from fastapi import Request, Response
from pydantic import ConfigDict

from nemo_gym import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    Conversation,
    ConversingAgent,
    ConversingAgentConfig,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from responses_api_agents.simple_agent.overridden import answer_of, asking_for


class SimpleAgentConfig(ConversingAgentConfig):
    """Settings of the plain agent."""


class SimpleAgentRunRequest(BaseRunRequest):
    """A dataset row."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyRequest(BaseVerifyRequest):
    """The row with the response."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyResponse(BaseVerifyResponse):
    """The row with the response and the reward."""

    model_config = ConfigDict(extra="allow")


class SimpleAgent(ConversingAgent):
    """Seeds the session, loops model and tools, verifies."""

    config: SimpleAgentConfig

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        """Answer a conversation, tools called; the cookies of the resources server's session come back."""
        params = body.model_dump(mode="json", exclude_unset=True)
        conversation = await _answered(self, params, dict(request.cookies))
        for name, value in conversation.session.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(conversation.plain_response())

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> Any:
        """Run one rollout from its row to its reward and answer what the verifier answered."""
        if type(self).run is SimpleAgent.run:
            running = super().run(request, body)
            # Thousands of rollouts are under way at once, and this one needs no more than its row.
            del body
            return await running
        # A subclass hands on the row as it has changed it, and looks at what was answered.
        answer = await super().run(asking_for(body, request), body)
        return SimpleAgentVerifyResponse.model_validate_json(answer.body)

    async def converse(
        self, request: Request, body: SimpleAgentRunRequest, row: dict[str, Any], session: dict[str, str]
    ) -> Conversation:
        """One answer, with all the calls that lead to it."""
        if type(self).responses is SimpleAgent.responses:
            del body
            return await _answered(self, row["responses_create_params"], session)
        # A subclass has its own way to answer: it is called as its route would be, without the detour over HTTP.
        response, set_by_it = await answer_of(self.responses, body.responses_create_params, request, session)
        return Conversation(response=response, session=session | set_by_it)


async def _answered(agent: SimpleAgent, params: dict[str, Any], session: dict[str, str]) -> Conversation:
    conversation = await agent.begin(params, session)
    await agent.answer(conversation)
    return conversation


if __name__ == "__main__":
    SimpleAgent.run_webserver()

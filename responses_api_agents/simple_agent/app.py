"""The plain agent: it seeds the session, lets model and tools take turns until the model answers, and verifies."""

from fastapi import Request, Response
from pydantic import ConfigDict

from nemo_gym import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ConversingAgentConfig,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    OverridableAgent,
)


class SimpleAgentConfig(ConversingAgentConfig):
    """Settings of the agent that calls the model and its tools until the model calls no more tools."""


class SimpleAgentRunRequest(BaseRunRequest):
    """A dataset row, with any further fields that the environment needs."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyRequest(BaseVerifyRequest):
    """The row with the response."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyResponse(BaseVerifyResponse):
    """The row with the response and the reward."""

    model_config = ConfigDict(extra="allow")


class SimpleAgent(OverridableAgent):
    """An agent without any strategy beyond calling tools. `OverridableAgent` defines `/run`."""

    config: SimpleAgentConfig

    GRADED = SimpleAgentVerifyResponse

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        """Answer a conversation, calling tools. Set the cookies of the resources server's session on the response."""
        params = body.model_dump(mode="json", exclude_unset=True)
        path = self.url_path_for_request("/v1/responses", request)
        conversation = await self.held(params, dict(request.cookies), path)
        for name, value in conversation.session.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(conversation.plain_response())


if __name__ == "__main__":
    SimpleAgent.run_webserver()

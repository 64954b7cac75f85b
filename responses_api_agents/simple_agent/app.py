"""The plain agent: it seeds a session, calls the model and its tools until the model answers, then calls `/verify`."""

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
    """The body of `/run`: a dataset row with any further fields that the environment needs."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyRequest(BaseVerifyRequest):
    """The body of `/verify`: the row and the agent's response."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyResponse(BaseVerifyResponse):
    """The response to `/verify`: the row, the agent's response and the reward."""

    model_config = ConfigDict(extra="allow")


class SimpleAgent(OverridableAgent):
    """An agent without any strategy beyond calling tools. `OverridableAgent` defines `/run`."""

    config: SimpleAgentConfig

    GRADED = SimpleAgentVerifyResponse

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        """Continue a conversation, including tool calls. The reply sets the cookies of the environment's session."""
        params = body.model_dump(mode="json", exclude_unset=True)
        path = self.url_path_for_request("/v1/responses", request)
        conversation = await self.held(params, dict(request.cookies), path)
        for name, value in conversation.session.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(conversation.plain_response())


if __name__ == "__main__":
    SimpleAgent.run_webserver()

"""The plain agent: model and tools in turn until the model answers, then the reward."""

from http.cookies import SimpleCookie
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
        conversation = await self._answered(params, dict(request.cookies))
        for name, value in conversation.session.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(conversation.plain_response())

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> Response:
        """Run one rollout from its row to its reward and answer what the verifier answered."""
        return await super().run(request, body)

    async def converse(
        self, request: Request, body: SimpleAgentRunRequest, row: dict[str, Any], session: dict[str, str]
    ) -> Conversation:
        """One answer, with all the calls that lead to it."""
        if type(self).responses is SimpleAgent.responses:
            return await self._answered(row["responses_create_params"], session)
        # A subclass has its own way to answer: it is called as its route would be, without the detour over HTTP.
        inner = Request(
            {**request.scope, "headers": [(b"cookie", "; ".join(map("=".join, session.items())).encode())]}
        )
        told = Response()
        answered = await self.responses(inner, told, body.responses_create_params)
        jar: SimpleCookie = SimpleCookie(
            "; ".join(value.split(";")[0] for value in told.headers.getlist("set-cookie"))
        )
        set_by_it = {name: morsel.coded_value for name, morsel in jar.items()}
        return Conversation(response=answered.model_dump(mode="json"), session=session | set_by_it)

    async def _answered(self, params: dict[str, Any], session: dict[str, str]) -> Conversation:
        conversation = await self.begin(params, session)
        await self.answer(conversation)
        return conversation


if __name__ == "__main__":
    SimpleAgent.run_webserver()

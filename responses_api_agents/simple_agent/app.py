"""The plain agent: it seeds a session, calls the model and its tools until the model answers, then calls `/verify`."""

from fastapi import Request, Response
from pydantic import ConfigDict

from nemo_gym import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    Conversation,
    ConversingAgentConfig,
    EnvironmentFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    OverridableAgent,
    get_response_json,
    reply_to,
)

SESSION_TOOLS = "nemo_gym_session_tools"
"""A cookie of an environment with tools that differ between sessions, listed at `GET /session_tools`.

Its value changes with the list."""
JOINED = "joined."
"""The beginning of its value if the list includes the tools of the row."""


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

    async def answer(self, conversation: Conversation) -> None:
        """Let model and tools take turns. Before each turn, ask for the session's tools if they have changed."""
        is_joined = conversation.session.get(SESSION_TOOLS, "").startswith(JOINED)
        # A row that lists tools chooses among them itself.
        if SESSION_TOOLS not in conversation.session or (conversation.params["tools"] and not is_joined):
            return await super().answer(conversation)
        environment, known = self.config.resources_server.name, None
        while not self.is_out_of_steps(conversation):
            if (version := conversation.session[SESSION_TOOLS]) != known:
                conversation.params["tools"], known = await self._session_tools(conversation), version
            calls = await conversation.ask(self.server_client, self.config.model_server.name)
            if not calls:
                return
            tells_faults = self.config.tool_faults == "tell_model"
            await conversation.act(self.server_client, environment, calls, tells_faults=tells_faults)

    async def _session_tools(self, conversation: Conversation) -> object:
        server = self.config.resources_server.name
        call = self.server_client.get(server, "/session_tools", cookies=conversation.session)
        reply = await reply_to(call, server=server, during="/session_tools", otherwise=EnvironmentFailed)
        return await get_response_json(reply)

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

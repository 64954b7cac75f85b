"""The plain agent: model and tools in turn until the model answers, then the reward."""

from collections.abc import Awaitable, Container
from http.cookies import SimpleCookie
from typing import Any, Literal, NamedTuple

import orjson
from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym import (
    INDEPENDENT_TOOLS_HEADER,
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResponsesAPIAgentConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    EnvironmentFailed,
    ModelServerRef,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ResourcesServerRef,
    ServerCallError,
    SimpleResponsesAPIAgent,
    failure_of_reply,
    get_response_json,
)
from responses_api_agents.simple_agent.conversation import Conversation, Cookies, cookies_of, values_of

NO_SUCH_ROUTE = (404, 405)


class SimpleAgentConfig(BaseResponsesAPIAgentConfig):
    """Settings of the plain agent."""

    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = Field(default=200, ge=1)
    """The conversation ends after this many turns of the model, answered or not."""
    tool_faults: Literal["fail_rollout", "tell_model"] = "fail_rollout"
    """A tool that answers with a server error fails the rollout, or is told to the model as its answer."""


class SimpleAgentRunRequest(BaseRunRequest):
    """A dataset row."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyRequest(BaseVerifyRequest):
    """The row with the response."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyResponse(BaseVerifyResponse):
    """The row with the response and the reward."""

    model_config = ConfigDict(extra="allow")


class ServerTools(NamedTuple):
    """What a resources server says of its tools."""

    definitions: list[dict[str, Any]]
    independent: frozenset[str]
    """Those whose calls may run at the same time."""


class SimpleAgent(SimpleResponsesAPIAgent):
    """Seeds the session, loops model and tools, verifies."""

    config: SimpleAgentConfig
    _server_tools: ServerTools | None = None

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        """Answer a conversation, tools called; the cookies of the resources server's session come back."""
        conversation = await self._converse(body.model_dump(mode="json", exclude_unset=True), dict(request.cookies))
        for name, value in conversation.session.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(conversation.response)

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> Response:
        """Run one rollout from its row to its reward and answer what the verifier answered."""
        row: dict[str, Any] = await request.json()
        seeded = await self._call("/seed_session", row, dict(request.cookies))
        session = cookies_of(seeded) or dict(request.cookies)
        try:
            conversation = await self._respond(request, body.responses_create_params, row, session)
            answered = {**row, "response": conversation.response}
            if not self.config.skip_verification:
                verified = await self._call("/verify", answered, conversation.session)
                return Response(verified.body, media_type="application/json")
        except BaseException:
            await self._close(session)
            raise
        await self._close(conversation.session)
        graded = {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        return Response(orjson.dumps({**answered, **graded}), media_type="application/json")

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """What the resources server makes of all graded rollouts."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        reply = await self._call("/aggregate_metrics", body.model_dump(), {})
        return AggregateMetrics.model_validate(await get_response_json(reply))

    async def _respond(
        self,
        request: Request,
        params: NeMoGymResponseCreateParamsNonStreaming,
        row: dict[str, Any],
        session: Cookies,
    ) -> Conversation:
        if type(self).responses is SimpleAgent.responses:
            return await self._converse(row["responses_create_params"], session)
        # A subclass has its own way to answer: it is called as its route would be, without the detour over HTTP.
        inner = Request(
            {**request.scope, "headers": [(b"cookie", "; ".join(map("=".join, session.items())).encode())]}
        )
        told = Response()
        answered = await self.responses(inner, told, params)
        jar: SimpleCookie = SimpleCookie(
            "; ".join(value.split(";")[0] for value in told.headers.getlist("set-cookie"))
        )
        return Conversation(response=answered.model_dump(mode="json"), session=session | values_of(jar))

    async def _converse(self, params: dict[str, Any], session: Cookies) -> Conversation:
        server_tools = await self._tools_of_server()
        tools = params.get("tools") or server_tools.definitions
        conversation = Conversation(
            params={**params, "tools": tools}, session=session, independent_tools=server_tools.independent
        )
        for _ in range(self.config.max_steps or 2**31):
            calls = await conversation.ask(self.server_client, self.config.model_server.name)
            if not calls:
                break
            await conversation.act(
                self.server_client,
                self.config.resources_server.name,
                calls,
                tells_faults=self.config.tool_faults == "tell_model",
            )
        return conversation

    async def _tools_of_server(self) -> ServerTools:
        if self._server_tools is None:
            server = self.config.resources_server.name
            reply = await self._answer(self.server_client.get(server, "/tools"), "/tools", tolerates=NO_SUCH_ROUTE)
            # A server that is not built on the base class has no such list; its rows carry the tools.
            # One that lists its tools in its own way says nothing of their order.
            independent = reply.headers.get(INDEPENDENT_TOOLS_HEADER, "")
            self._server_tools = (
                ServerTools(await get_response_json(reply), frozenset(independent.split(",")))
                if reply.ok
                else ServerTools([], frozenset())
            )
        return self._server_tools

    async def _call(self, path: str, body: dict[str, Any], cookies: Cookies) -> Any:
        server = self.config.resources_server.name
        return await self._answer(self.server_client.post(server, path, json=body, cookies=cookies), path)

    async def _answer(self, call: Awaitable[Any], path: str, tolerates: Container[int] = ()) -> Any:
        server = self.config.resources_server.name
        try:
            reply = await call
        except ServerCallError as error:
            raise EnvironmentFailed(str(error), server=server) from error
        if not reply.ok and reply.status not in tolerates:
            raise failure_of_reply(
                reply.status, await reply.read(), server=server, during=path, otherwise=EnvironmentFailed
            )
        return reply

    async def _close(self, session: Cookies) -> None:
        try:
            await self.server_client.post(self.config.resources_server.name, "/close_session", cookies=session)
        except ServerCallError:
            # The server forgets an idle session by itself; what failed the rollout is the news.
            return


if __name__ == "__main__":
    SimpleAgent.run_webserver()

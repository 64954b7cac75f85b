"""Base class of agents that converse: seed a session, alternate between model and tools, then verify."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Container
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import ConfigDict, Field, PrivateAttr
from starlette.requests import Request
from starlette.responses import Response

from nemo_gym.calls.client import get_response_json
from nemo_gym.calls.problems import reply_to
from nemo_gym.config.settings import BaseResponsesAPIAgentConfig, ModelServerRef, ResourcesServerRef
from nemo_gym.context.deadline import grace_period
from nemo_gym.errors import EnvironmentFailed, RolloutError, ServerCallError
from nemo_gym.schemas.rollout import AggregateMetrics, AggregateMetricsRequest, BaseRunRequest
from nemo_gym.servers.agent import SimpleResponsesAPIAgent
from nemo_gym.servers.conversation import Conversation, Cookies, check_response, cookies_of
from nemo_gym.servers.tools.tool import INDEPENDENT_TOOLS_HEADER

NO_SUCH_ROUTE = (404, 405)


class ConversingAgentConfig(BaseResponsesAPIAgentConfig):
    """Settings of a conversing agent: its servers and the limits of a conversation."""

    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = Field(default=200, ge=1)
    """The conversation ends after this many turns of the model, even without a final answer."""
    tool_faults: Literal["fail_rollout", "tell_model"] = "fail_rollout"
    """Whether a tool's server error fails the rollout or is returned to the model as the tool's result."""


class ConversingRunRequest(BaseRunRequest):
    """A dataset row."""

    model_config = ConfigDict(extra="allow")


class ServerTools(NamedTuple):
    """The tools that a resources server lists."""

    definitions: list[dict[str, Any]]
    independent: frozenset[str]
    """Names of the tools whose calls may run at the same time."""


NO_TOOLS = ServerTools([], frozenset())


class ConversingAgent(SimpleResponsesAPIAgent):
    """Base class of conversing agents. Implement `converse`; seeding, grading, metrics and cleanup are built in."""

    config: ConversingAgentConfig

    _server_tools: ServerTools | None = PrivateAttr(default=None)

    @abstractmethod
    async def converse(self, request: Request, body: Any, row: dict[str, Any], session: Cookies) -> Conversation:
        """Hold the conversation of a row. `session` contains the cookies of the row's seeded session."""

    async def run(self, request: Request, body: ConversingRunRequest) -> Response:
        """Run one rollout from its row to its reward and return the verifier's response."""
        row: dict[str, Any] = await request.json()
        seeded = await _call(self, "/seed_session", row, dict(request.cookies))
        session = cookies_of(seeded) or dict(request.cookies)
        try:
            conversing = self.converse(request, body, row, session)
            # Free memory, because thousands of conversations may run at once and the row holds the same data.
            del body
            conversation = await conversing
            answered = {**row, **conversation.added, "response": conversation.response}
            if not self.config.skip_verification:
                verified = await _verified(self, answered, conversation)
                return Response(_with(conversation.added, await verified.read()), media_type="application/json")
            check_response(conversation.plain_response(), self.config.model_server.name)
        except BaseException:
            await _close_surely(self, session)
            raise
        await _close(self, conversation.session)
        graded = {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        return Response(orjson.dumps({**answered, **graded}), media_type="application/json")

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the resources server's metrics over all graded rollouts."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        reply = await _call(self, "/aggregate_metrics", body.model_dump(), {})
        return AggregateMetrics.model_validate(await get_response_json(reply))

    async def begin(self, params: dict[str, Any], session: Cookies) -> Conversation:
        """Return a new conversation. If `params` list no tools, it gets those of the resources server."""
        server_tools = await _tools_of_server(self)
        tools = params.get("tools") or server_tools.definitions
        return Conversation(
            params={**params, "tools": tools}, session=session, independent_tools=server_tools.independent
        )

    async def answer(self, conversation: Conversation) -> None:
        """Alternate between model and tools until an answer, a turn that is cut off, or `max_steps`."""
        while not self.is_out_of_steps(conversation):
            calls = await conversation.ask(self.server_client, self.config.model_server.name)
            if not calls:
                return
            await conversation.act(
                self.server_client,
                self.config.resources_server.name,
                calls,
                tells_faults=self.config.tool_faults == "tell_model",
            )

    def is_out_of_steps(self, conversation: Conversation) -> bool:
        """Return whether the conversation has reached `max_steps`."""
        return self.config.max_steps is not None and conversation.turns >= self.config.max_steps


# Functions, because subclasses in published folders may define methods called `_call` or `_answer`.


async def _tools_of_server(agent: ConversingAgent) -> ServerTools:
    if agent._server_tools is None:
        server = agent.config.resources_server.name
        reply = await _answer(agent, agent.server_client.get(server, "/tools"), "/tools", tolerates=NO_SUCH_ROUTE)
        # A server without our base class does not list its tools. Its rows contain them instead.
        agent._server_tools = await _tools_in(reply) if reply.ok else NO_TOOLS
    return agent._server_tools


async def _verified(agent: ConversingAgent, answered: dict[str, Any], conversation: Conversation) -> Any:
    try:
        return await _call(agent, "/verify", answered, conversation.session)
    except EnvironmentFailed:
        # An invalid response of the model may be the reason, and then the model server is to blame.
        check_response(conversation.plain_response(), agent.config.model_server.name)
        raise


async def _call(agent: ConversingAgent, path: str, body: dict[str, Any], cookies: Cookies) -> Any:
    server = agent.config.resources_server.name
    return await _answer(
        agent, agent.server_client.post(server_name=server, url_path=path, json=body, cookies=cookies), path
    )


async def _answer(agent: ConversingAgent, call: Awaitable[Any], path: str, tolerates: Container[int] = ()) -> Any:
    server = agent.config.resources_server.name
    return await reply_to(call, server=server, during=path, otherwise=EnvironmentFailed, tolerates=tolerates)


async def _close_surely(agent: ConversingAgent, session: Cookies) -> None:
    """Close the session even if this task is cancelled, for example at the rollout's deadline."""
    closing = asyncio.ensure_future(_close(agent, session))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


async def _close(agent: ConversingAgent, session: Cookies) -> None:
    try:
        with grace_period():
            await agent.server_client.post(agent.config.resources_server.name, "/close_session", cookies=session)
    except (ServerCallError, RolloutError):
        # Ignored, because the server drops idle sessions itself. The rollout's own failure matters more.
        return


async def _tools_in(reply: Any) -> ServerTools:
    """Parse a resources server's tool list. Any other reply, such as a catch-all route's, means it has none."""
    try:
        definitions = await get_response_json(reply)
    except orjson.JSONDecodeError:
        return NO_TOOLS
    if not isinstance(definitions, list):
        return NO_TOOLS
    # A server with its own `/tools` route does not send the header. Then no tool is independent.
    independent: str = reply.headers.get(INDEPENDENT_TOOLS_HEADER, "")
    return ServerTools(definitions, frozenset(independent.split(",")))


def _with(added: dict[str, Any], verified: bytes) -> bytes:
    """Return the verifier's response, plus fields of the agent that its response class dropped."""
    if not added:
        return verified
    graded = orjson.loads(verified)
    return orjson.dumps({**added, **graded}) if isinstance(graded, dict) else verified

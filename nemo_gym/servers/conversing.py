"""The base class of agents that converse: seed a session, let model and tools take turns, have the whole graded."""

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
    """Who converses with what, and for how long."""

    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = Field(default=200, ge=1)
    """The conversation ends after this many turns of the model, answered or not."""
    tool_faults: Literal["fail_rollout", "tell_model"] = "fail_rollout"
    """A tool that answers with a server error fails the rollout, or is told to the model as its answer."""


class ConversingRunRequest(BaseRunRequest):
    """A dataset row."""

    model_config = ConfigDict(extra="allow")


class ServerTools(NamedTuple):
    """What a resources server says of its tools."""

    definitions: list[dict[str, Any]]
    independent: frozenset[str]
    """Those whose calls may run at the same time."""


NO_TOOLS = ServerTools([], frozenset())


class ConversingAgent(SimpleResponsesAPIAgent):
    """Subclass it and write `converse`; seeding, grading, metrics and the end of a failed session are here."""

    config: ConversingAgentConfig

    _server_tools: ServerTools | None = PrivateAttr(default=None)

    @abstractmethod
    async def converse(self, request: Request, body: Any, row: dict[str, Any], session: Cookies) -> Conversation:
        """Hold the conversation of a row; `session` are the cookies of the session that was seeded for it."""

    async def run(self, request: Request, body: ConversingRunRequest) -> Response:
        """Run one rollout from its row to its reward and answer what the verifier answered."""
        row: dict[str, Any] = await request.json()
        seeded = await _call(self, "/seed_session", row, dict(request.cookies))
        session = cookies_of(seeded) or dict(request.cookies)
        try:
            conversing = self.converse(request, body, row, session)
            # A conversation may take long, and thousands are held at once; the row says all that this does.
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
        """What the resources server makes of all graded rollouts."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        reply = await _call(self, "/aggregate_metrics", body.model_dump(), {})
        return AggregateMetrics.model_validate(await get_response_json(reply))

    async def begin(self, params: dict[str, Any], session: Cookies) -> Conversation:
        """A conversation in which nothing was said yet; without tools of its own it gets the server's."""
        server_tools = await _tools_of_server(self)
        tools = params.get("tools") or server_tools.definitions
        return Conversation(
            params={**params, "tools": tools}, session=session, independent_tools=server_tools.independent
        )

    async def answer(self, conversation: Conversation) -> None:
        """Let model and tools take turns until the model answers, its turn is cut off, or `max_steps` are over."""
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
        """Whether the model has had all of its turns."""
        return self.config.max_steps is not None and conversation.turns >= self.config.max_steps


# Functions, not methods: subclasses of published folders have helpers of their own called `_call` or `_answer`.


async def _tools_of_server(agent: ConversingAgent) -> ServerTools:
    if agent._server_tools is None:
        server = agent.config.resources_server.name
        reply = await _answer(agent, agent.server_client.get(server, "/tools"), "/tools", tolerates=NO_SUCH_ROUTE)
        # A server that is not built on the base class has no such list; its rows carry the tools.
        agent._server_tools = await _tools_in(reply) if reply.ok else NO_TOOLS
    return agent._server_tools


async def _verified(agent: ConversingAgent, answered: dict[str, Any], conversation: Conversation) -> Any:
    try:
        return await _call(agent, "/verify", answered, conversation.session)
    except EnvironmentFailed:
        # What cannot be graded may be the model server's fault.
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
    """Close the session even where the rollout's time is over just now, and this task cancelled for it."""
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
        # The server forgets an idle session by itself; what failed the rollout is the news.
        return


async def _tools_in(reply: Any) -> ServerTools:
    """The list of a resources server; whatever else is answered there, by a catch-all route say, is none."""
    try:
        definitions = await get_response_json(reply)
    except orjson.JSONDecodeError:
        return NO_TOOLS
    if not isinstance(definitions, list):
        return NO_TOOLS
    # One that lists its tools in its own way says nothing of their order.
    independent: str = reply.headers.get(INDEPENDENT_TOOLS_HEADER, "")
    return ServerTools(definitions, frozenset(independent.split(",")))


def _with(added: dict[str, Any], verified: bytes) -> bytes:
    """What the verifier answered; a response class of its own may have left out what the agent added."""
    if not added:
        return verified
    graded = orjson.loads(verified)
    return orjson.dumps({**added, **graded}) if isinstance(graded, dict) else verified

"""Base class of agents that converse: seed a session, alternate between model and tools, then verify."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Container, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Literal, NamedTuple

import orjson
from pydantic import ConfigDict, Field, PrivateAttr
from starlette.requests import Request
from starlette.responses import Response

from nemo_gym.calls.caller import WrittenRequest, encode_json
from nemo_gym.calls.client import get_response_json
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import reply_to
from nemo_gym.calls.relayed_metrics import relayed_metrics
from nemo_gym.calls.results import check_is_object
from nemo_gym.config.settings import BaseResponsesAPIAgentConfig, ModelServerRef, ResourcesServerRef
from nemo_gym.context.deadline import grace_period, to_the_end
from nemo_gym.context.rollout_id import current_rollout_id
from nemo_gym.errors import EnvironmentFailed, RolloutError, ServerCallError
from nemo_gym.http.reply import Reply
from nemo_gym.jsonl import JsonObject, dump_json, loads_exact
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.rollout import ADDED_ONLY_HEADER, AggregateMetrics, AggregateMetricsRequest, BaseRunRequest
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.shapes import ToolDefinition
from nemo_gym.servers.agent import SimpleResponsesAPIAgent
from nemo_gym.servers.conversation import Conversation, Cookies, check_response
from nemo_gym.servers.observing import Observer
from nemo_gym.servers.tools.tool import INDEPENDENT_TOOLS_HEADER
from nemo_gym.web.json_response import WrittenJson

NO_SUCH_ROUTE = (404, 405)
ADDED_ONLY = [(ADDED_ONLY_HEADER.encode(), b"true")]
LARGE_BYTES = 16 * 1024
"""Row size from which a verifier is asked to return only the fields that it adds. Smaller rows are cheap to send."""


class ConversingAgentConfig(BaseResponsesAPIAgentConfig):
    """Settings of a conversing agent: its servers and the limits of a conversation."""

    resources_server: ResourcesServerRef
    """The environment, as `{type: resources_servers, name: …}`."""
    model_server: ModelServerRef
    """The policy, as `{type: responses_api_models, name: …}`."""
    max_steps: int | None = Field(default=200, ge=1)
    """The maximum number of turns of the model. After them, the conversation ends even without a final answer."""
    tool_faults: Literal["fail_rollout", "tell_model"] = "fail_rollout"
    """Whether a tool's server error fails the rollout or is returned to the model as the tool's result."""


class ConversingRunRequest(BaseRunRequest):
    """The body of `/run`: a dataset row. Extra fields are kept."""

    model_config = ConfigDict(extra="allow")


class ServerTools(NamedTuple):
    """The tools that a resources server lists."""

    definitions: list[ToolDefinition]
    independent: frozenset[str]
    """Names of the tools whose calls may run at the same time."""


NO_TOOLS = ServerTools([], frozenset())


class ConversingAgent(SimpleResponsesAPIAgent):
    """Base class of conversing agents. Implement `converse`; seeding, grading, metrics and cleanup are built in."""

    config: ConversingAgentConfig

    EPISODE_ROUTES = ()
    TOOLS_OVER_MCP: ClassVar[bool] = False
    """Whether the agent can use an environment's tools only over MCP."""

    _server_tools: ServerTools | None = PrivateAttr(default=None)

    @abstractmethod
    async def converse(self, request: Request, body: Any, row: JsonObject, session: Cookies) -> Conversation:
        """Run the conversation of a row. `session` contains the cookies of the row's seeded session.

        `request.state.seeded` is the reply to `/seed_session`.
        """

    async def run(self, request: Request, body: ConversingRunRequest) -> Response:
        """Run one rollout from its row to its reward and return the verifier's response."""
        row: JsonObject = await request.json()
        seeded = await call_environment(self, "/seed_session", row, dict(request.cookies))
        session = hooks().cookies(seeded) or dict(request.cookies)
        request.state.seeded = seeded
        try:
            conversing = self.converse(request, body, row, session)
            # Free memory: `row` holds the same data, and thousands of conversations may run at once.
            del body
            conversation = await conversing
            # Take the session from the conversation, because an agent may have opened several sessions.
            session = conversation.session
            answered = {**row, **conversation.added, "response": conversation.response}
            if not self.config.skip_verification:
                graded = await _graded(self, answered, conversation)
                return WrittenJson(_masked(_with_observations(graded, row, conversation), conversation))
            check_response(conversation.plain_response(), self.config.model_server.name)
        except BaseException:
            await to_the_end(close_session(self, session))
            raise
        await close_session(self, session)
        unverified = {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        written = _with_observations(dump_json({**answered, **unverified}), row, conversation)
        return WrittenJson(_masked(written, conversation))

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the resources server's metrics over all graded rollouts."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        return await relayed_metrics(self.server_client, self.config.resources_server.name, body)

    async def begin(
        self, params: Mapping[str, object], session: Cookies, model_path: str | None = None
    ) -> Conversation:
        """Return a new conversation. If `params` do not list tools, the resources server's tools are used.

        `model_path` is the URL path of the requests for the model's turns. The default is
        `/v1/responses`, after a prefix with the rollout's id if calls are captured.
        """
        server_tools = await _tools_of_server(self)
        tools = params.get("tools") or server_tools.definitions
        path = model_path or self.url_path_for_run(RESPONSES_PATH, None)
        observer = Observer(self.config.name) if self._model_call_capture_enabled() else None
        return Conversation({**params, "tools": tools}, session, server_tools.independent, path, observer=observer)

    async def answer(self, conversation: Conversation) -> None:
        """Alternate between model and tools until the model answers or is cut off, or until `max_steps` is reached."""
        while not self.is_out_of_steps(conversation):
            calls = await conversation.ask(self.server_client, self.config.model_server.name)
            if not calls:
                return
            server, tells_faults = self.config.resources_server.name, self.config.tool_faults == "tell_model"
            await conversation.act(self.server_client, server, calls, tells_faults=tells_faults)

    def is_out_of_steps(self, conversation: Conversation) -> bool:
        return self.config.max_steps is not None and conversation.turns >= self.config.max_steps


# These are functions instead of methods, because subclasses can define a method `_answer`.


async def _tools_of_server(agent: ConversingAgent) -> ServerTools:
    # Read the attribute once, because each access to a private attribute of a pydantic model takes a microsecond.
    tools = agent._server_tools
    if tools is None:
        server = agent.config.resources_server.name
        reply = await _answer(agent, agent.server_client.get(server, "/tools"), "/tools", tolerates=NO_SUCH_ROUTE)
        # A server without nemo_gym's base class does not list its tools. Its rows contain them instead.
        tools = agent._server_tools = await _tools_in(reply) if reply.ok else NO_TOOLS
    return tools


async def _graded(agent: ConversingAgent, answered: Mapping[str, object], conversation: Conversation) -> bytes:
    """Return the graded row. For a large row, the verifier may send only the fields that it adds."""
    request = WrittenRequest(answered)
    request.text = text = encode_json(answered)
    request.headers = ADDED_ONLY if len(text) >= LARGE_BYTES else []
    reply = await _verified(agent, request, conversation)
    body: bytes = await reply.read()
    check_is_object(body, server=agent.config.resources_server.name, during="/verify", otherwise=EnvironmentFailed)
    # A reply without the header contains the whole row.
    if ADDED_ONLY_HEADER not in hooks().headers(reply):
        return _with(conversation.added, body)
    added = loads_exact(body)
    if request.keys().isdisjoint(added):
        return b"".join((memoryview(text)[:-1], b",", memoryview(body)[1:]))
    return encode_json({**request, **added})


async def _verified(agent: ConversingAgent, answered: Mapping[str, object], conversation: Conversation) -> Reply:
    try:
        return await call_environment(agent, "/verify", answered, conversation.session)
    except EnvironmentFailed:
        # If the model's response is invalid, raise a failure of the model server instead.
        check_response(conversation.plain_response(), agent.config.model_server.name)
        raise


def call_environment(
    agent: ConversingAgent, path: str, body: Mapping[str, object], cookies: Cookies
) -> Awaitable[Reply]:
    server = agent.config.resources_server.name
    call = agent.server_client.post(server_name=server, url_path=path, json=body, cookies=cookies)
    return _answer(agent, call, path)


def _answer(
    agent: ConversingAgent, call: Awaitable[Reply], path: str, tolerates: Container[int] = ()
) -> Awaitable[Reply]:
    server = agent.config.resources_server.name
    return reply_to(call, server=server, during=path, otherwise=EnvironmentFailed, tolerates=tolerates)


async def close_session(agent: ConversingAgent, session: Cookies) -> None:
    # Ignore failures: the server drops idle sessions itself, and the rollout's own result or failure matters more.
    with suppress(ServerCallError, RolloutError), grace_period():
        await agent.server_client.post(agent.config.resources_server.name, "/close_session", cookies=session)


async def _tools_in(reply: Reply) -> ServerTools:
    """Parse a resources server's tool list. Any other reply, such as a catch-all route's, counts as an empty list."""
    with suppress(orjson.JSONDecodeError):
        if isinstance(definitions := await get_response_json(reply), list):
            # A reply without the header, such as that of a server's own `/tools` route, makes all calls run in order.
            return ServerTools(definitions, frozenset(reply.headers.get(INDEPENDENT_TOOLS_HEADER, "").split(",")))
    return NO_TOOLS


def _with(added: Mapping[str, object], verified: bytes) -> bytes:
    """Return the verifier's response, plus the agent's added fields that the verifier's response class dropped."""
    if not added:
        return verified
    graded = loads_exact(verified)
    return dump_json({**added, **graded}) if isinstance(graded, dict) else verified


def _masked(graded: bytes, conversation: Conversation) -> bytes:
    """Return the result, masked if the conversation has a reason for that. The verifier's own reason is kept."""
    result = None if conversation.mask_reason is None else loads_exact(graded)
    if not isinstance(result, dict):
        return graded
    reason = result.get("failure_reason") or conversation.mask_reason
    return dump_json({**result, "mask_sample": True, "failure_reason": reason})


def _with_observations(graded: bytes, row: JsonObject, conversation: Conversation) -> bytes:
    """Return the result with the observations of its conversation, if the run captures calls.

    The observations are not sent to the verifier, because they may be longer than the row.
    """
    observer = conversation.observer
    result = None if observer is None else loads_exact(graded)
    if observer is None or not isinstance(result, dict):
        return graded
    asked, said = conversation.asked, conversation.said
    observed = observer.observations(asked, said, was_cut_off=conversation.was_cut_off)
    known = Row(row)
    rollout_id = known.rollout_id or current_rollout_id()
    if rollout_id is not None:
        ids = {"task_id": known.task_id or rollout_id, "rollout_id": rollout_id}
        resolved = result.get("resolved")
        observed |= observer.trajectory(asked, said, ids, resolved if isinstance(resolved, bool) else None)
    return dump_json({**result, **observed})

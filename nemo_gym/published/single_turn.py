"""Environment server that runs each task as one turn of an agent: seed, converse, verify and close the sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from pydantic import Field, PrivateAttr, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from nemo_gym.calls.client import get_response_json
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import reply_to
from nemo_gym.calls.relayed_metrics import relayed_metrics
from nemo_gym.calls.results import check_is_object
from nemo_gym.config.settings import AgentServerRef, BaseResponsesAPIAgentConfig, ResourcesServerRef
from nemo_gym.context.deadline import grace_period, to_the_end
from nemo_gym.context.rollout_id import current_rollout_id
from nemo_gym.errors import (
    AgentFailed,
    EnvironmentFailed,
    InvalidTask,
    Overloaded,
    RolloutError,
    RolloutTimedOut,
    ServerCallError,
    ServerLost,
)
from nemo_gym.http.reply import Reply, Timeouts
from nemo_gym.jsonl import JsonObject, dump_json, loads_exact
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.responses import Response as ModelResponse
from nemo_gym.schemas.rollout import AggregateMetrics, AggregateMetricsRequest, BaseRunRequest, run_headers
from nemo_gym.schemas.sessions import (
    AGENT_SESSIONS_PATH,
    CLOSE_AGENT_SESSION_PATH,
    AgentCloseSessionResponse,
    session_fields,
)
from nemo_gym.schemas.tool_access import DirectHttpToolAccess
from nemo_gym.servers.agent import SimpleResponsesAPIAgent
from nemo_gym.servers.conversation import Cookies
from nemo_gym.servers.conversing import NO_SUCH_ROUTE
from nemo_gym.web.json_response import WrittenJson

logger = logging.getLogger(__name__)

SLACK_S = 60.0
"""Seconds added to a call's timeout, so that the limit from the settings expires first and its error is raised."""


class SingleAgentTurnConfig(BaseResponsesAPIAgentConfig):
    """Settings of an environment server: the agent, the resources server and the time limits."""

    agent_server: AgentServerRef
    """The agent, as `{type: responses_api_agents, name: …}`. Only its `/v1/responses` and its sessions are called."""
    resources_server: ResourcesServerRef
    """The resources server, as `{type: resources_servers, name: …}`. Default: the agent's resources server."""
    seed_with: Literal["task", "row"] = "task"
    """Whether `/seed_session` receives the ids and the data of the task, or the whole row as in release 0.5."""
    max_concurrent_episodes: int | None = Field(default=None, ge=1)
    """The maximum number of episodes that each process runs at once. Default: no limit."""
    queue_timeout_seconds: float | None = Field(default=3600.0, gt=0)
    """Maximum seconds to wait for a free slot. After that, the episode fails as `overloaded` and is retried. If it is
    None, only the rollout's own time limit ends the wait."""
    default_episode_timeout_seconds: float = Field(default=21600.0, gt=0)
    """Time limit in seconds from an episode's start to its reward. An episode that exceeds it fails as `timeout`."""
    cleanup_timeout_seconds: float = Field(default=180.0, gt=0)
    """Time limit in seconds for closing a session, even if the episode's own time limit has passed."""


class SingleAgentTurn(SimpleResponsesAPIAgent):
    """Server for a `single_agent_turn` block in `environment_servers`. Its `/run` plays one episode per row."""

    config: SingleAgentTurnConfig

    FAILURE = EnvironmentFailed

    _slots: asyncio.Semaphore | None = PrivateAttr(default=None)

    async def responses(self) -> None:
        """Reject the call, because only the agent's own server continues conversations."""
        agent = self.config.agent_server.name
        raise InvalidTask(
            f"{self.config.name} does not have {RESPONSES_PATH}. Call {RESPONSES_PATH} of its agent '{agent}', or "
            f"/run of {self.config.name}"
        )

    async def run(self, request: Request, body: BaseRunRequest) -> Response:
        """Run one episode from its row to its reward and return the verifier's response."""
        row: JsonObject = await request.json()
        # Free memory, because thousands of episodes may run at once and the row holds the same data.
        del body
        async with self._slot():
            return WrittenJson(await _Episode(self, row, dict(request.cookies)).play())

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the resources server's metrics over all graded rollouts."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        return await relayed_metrics(self.server_client, self.config.resources_server.name, body)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        config = self.config
        if config.max_concurrent_episodes is None:
            yield
            return
        if self._slots is None:
            self._slots = asyncio.Semaphore(config.max_concurrent_episodes)
        slots = self._slots
        try:
            async with asyncio.timeout(config.queue_timeout_seconds):
                await slots.acquire()
        except TimeoutError as error:
            raise Overloaded(
                f"{config.name}: queue_timeout_seconds ({config.queue_timeout_seconds:g} s) passed while all "
                f"max_concurrent_episodes ({config.max_concurrent_episodes}) were running. Increase one of them, or "
                "run fewer rollouts at once",
                server=config.name,
                tier=EnvironmentFailed.default_tier,
            ) from error
        try:
            yield
        finally:
            slots.release()


class _Call(NamedTuple):
    server: str
    path: str
    body: Mapping[str, object] | None
    otherwise: type[RolloutError]
    tolerates: Container[int]


class _Episode:
    """One row's episode. Each step calls one server, within the time that the episode has left."""

    def __init__(self, environment: SingleAgentTurn, row: JsonObject, cookies: Cookies) -> None:
        self.environment, self.config, self.row = environment, environment.config, row
        self.agent, self.resources = self.config.agent_server.name, self.config.resources_server.name
        self.cookies = cookies
        """The cookies of all servers. Each server reads only its own cookies."""
        self.ends_at = time.monotonic() + self.config.default_episode_timeout_seconds
        try:
            self.session = session_fields(row)
        except ValueError as error:
            raise InvalidTask(f"{self.config.name}: {error}") from error
        self.agent_session = {"agent_session_id": uuid4().hex, "episode_id": self.session["episode_id"]}
        self.observations: JsonObject | None = None
        """The observations that the agent has returned at the end of its session."""

    async def play(self) -> bytes:
        """Play the episode and return the graded row. Close its sessions, even if a step fails."""
        seed = self.session if self.config.seed_with == "task" else self.row
        await self._call(self.resources, "/seed_session", seed, EnvironmentFailed)
        try:
            response = await self._response()
            return await self._graded(response)
        finally:
            await self._release(self.resources, "/close_session", None)

    async def _response(self) -> Mapping[str, object]:
        """Return the agent's response, from a new agent session if the agent has session routes."""
        try:
            access = DirectHttpToolAccess(name=self.resources, cookies=self.cookies, **await self._place())
            task = {"task_id": self.session["task_id"], "tool_accesses": [access.model_dump()]}
            seed = {**self.agent_session, **task}
            opened = await self._call(self.agent, AGENT_SESSIONS_PATH, seed, AgentFailed, tolerates=NO_SUCH_ROUTE)
            path = self.environment.url_path_for_run(RESPONSES_PATH, None)
            reply = await self._call(self.agent, path, self.row["responses_create_params"], AgentFailed)
            response: Mapping[str, object] = await get_response_json(reply)
        except BaseException:
            await self._release(self.agent, CLOSE_AGENT_SESSION_PATH, self.agent_session)
            raise
        if opened.ok:
            # Raise if closing fails, because verification must not begin before the agent has ended.
            await to_the_end(self._close_agent())
        return response

    async def _place(self) -> dict[str, Any]:
        """Return the base URL of the resources server, and the headers that each call to it needs."""
        client = self.environment.server_client
        # In a thread, because the head server of a run on several machines may be asked for the address.
        base_url = await asyncio.to_thread(hooks().base_url, client, self.resources)
        book = hooks().address_book(client)
        headers = run_headers(book.run_token, book.run_id if book.head is None else "")
        return {"base_url": base_url, "headers": {name.decode(): value.decode() for name, value in headers}}

    async def _close_agent(self) -> None:
        """Close the agent's session, and keep the cookies and the observations that the agent returns."""
        closed = await self._close(self.agent, CLOSE_AGENT_SESSION_PATH, self.agent_session, AgentFailed)
        if not closed.ok:
            return
        try:
            kept = AgentCloseSessionResponse.model_validate(await get_response_json(closed))
        except ValueError as error:
            reason = f"{self.agent}: the answer of {CLOSE_AGENT_SESSION_PATH} is not valid: {error}"
            raise AgentFailed(reason, server=self.agent) from error
        self.cookies = {**self.cookies, **kept.resources_cookies}
        self.observations = kept.agent_observations

    async def _graded(self, response: Mapping[str, object]) -> bytes:
        answered = {**self.row, "response": response}
        if self.config.skip_verification:
            self._check(response)
            unverified = {"reward": self.config.skip_verification_reward, "verification_skipped": True}
            return self._observed(dump_json({**answered, **unverified}))
        try:
            reply = await self._call(self.resources, "/verify", answered, EnvironmentFailed)
        except (EnvironmentFailed, InvalidTask):
            # If the agent's response is invalid, raise `AgentFailed` instead, because the agent caused the failure.
            self._check(response)
            raise
        graded: bytes = await reply.read()
        check_is_object(graded, server=self.resources, during="/verify", otherwise=EnvironmentFailed)
        return self._observed(graded)

    def _observed(self, graded: bytes) -> bytes:
        if self.observations is None:
            return graded
        return dump_json({"ng_agent_observations": self.observations, **loads_exact(graded)})

    def _check(self, response: object) -> None:
        try:
            ModelResponse.model_validate(response)
        except ValidationError as error:
            reason = f"{self.agent}: the answer of {RESPONSES_PATH} is not a response: {error}"
            raise AgentFailed(reason, server=self.agent) from error

    async def _call(
        self,
        server: str,
        path: str,
        body: Mapping[str, object],
        otherwise: type[RolloutError],
        tolerates: Container[int] = (),
    ) -> Reply:
        call = _Call(server, path, body, otherwise, tolerates)
        left_s = max(0.0, self.ends_at - time.monotonic())
        limit_s = self.config.default_episode_timeout_seconds
        return await self._reply(call, left_s, limit_s, "default_episode_timeout_seconds")

    async def _release(self, server: str, path: str, body: Mapping[str, object] | None) -> None:
        """Close a session, even if the caller is cancelled. A failure is only logged, because idle sessions expire."""
        try:
            await to_the_end(self._close(server, path, body, RolloutError))
        except (RolloutError, ServerCallError) as error:
            logger.warning("%s: cleaning up rollout %s failed: %s", self.config.name, current_rollout_id(), error)

    async def _close(
        self, server: str, path: str, body: Mapping[str, object] | None, otherwise: type[RolloutError]
    ) -> Reply:
        limit_s = self.config.cleanup_timeout_seconds
        with grace_period(limit_s + SLACK_S):
            call = _Call(server, path, body, otherwise, NO_SUCH_ROUTE)
            return await self._reply(call, limit_s, limit_s, "cleanup_timeout_seconds")

    async def _reply(self, call: _Call, left_s: float, limit_s: float, key: str) -> Reply:
        """Return the reply to a call and store its cookies. The error after a timeout names the setting `key`."""
        given = {} if call.body is None else {"json": call.body}
        timeouts = Timeouts(read_s=left_s + SLACK_S, total_s=left_s + SLACK_S)
        calling = self.environment.server_client.post(
            call.server, call.path, cookies=self.cookies, timeouts=timeouts, **given
        )
        try:
            async with asyncio.timeout(left_s):
                reply: Reply = await reply_to(
                    calling, server=call.server, during=call.path, otherwise=call.otherwise, tolerates=call.tolerates
                )
        except TimeoutError as error:
            reason = f"{self.config.name}: {call.path} of {call.server} did not reply within {key} ({limit_s:g} s)"
            raise RolloutTimedOut(reason, server=call.server, tier=call.otherwise.default_tier) from error
        except ServerLost as error:
            if error.server == call.server:
                error.tier = call.otherwise.default_tier
            raise
        self.cookies = {**self.cookies, **hooks().cookies(reply)}
        return reply

"""Base class of agent servers, which run one rollout from its row to its reward."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Container, Coroutine, Iterable, MutableMapping
from functools import cached_property
from typing import Any, ClassVar

from fastapi import Body, FastAPI, HTTPException
from starlette.requests import Request

from nemo_gym.calls.hooks import hooks
from nemo_gym.config.settings import BaseResponsesAPIAgentConfig
from nemo_gym.context.rollout_id import (
    ROLLOUT_PARAMETER,
    apply_rollout_prefix,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
    rollout_path_prefix,
    wants_tokens,
)
from nemo_gym.errors import AgentFailed, InvalidTask, RolloutError
from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics import AggregateMetricsMixin
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.rollout import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.sessions import (
    AGENT_SESSIONS_PATH,
    CLOSE_AGENT_SESSION_PATH,
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
)
from nemo_gym.schemas.tool_access import ToolAccess
from nemo_gym.servers.agent_sessions import AgentSessions, AgentSessionState
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.conversation import Unfinished
from nemo_gym.servers.judging import JudgeFailures
from nemo_gym.servers.policies import accept_row_policies, check_no_policy, check_own_client
from nemo_gym.servers.sessions import session_id_of
from nemo_gym.servers.tools.handlers import Endpoint, Handler, Method, endpoint_of
from nemo_gym.web.failures import CONVERSATION_SCOPE_KEY
from nemo_gym.web.fast_routes import FastRoute
from nemo_gym.web.session_cookies import SESSION_ID_KEY

__all__ = ["BaseResponsesAPIAgent", "Body", "SimpleResponsesAPIAgent"]

SESSION_BEGINNINGS = frozenset({AGENT_SESSIONS_PATH, "/run"})


class BaseResponsesAPIAgent(SimpleServer):
    config: BaseResponsesAPIAgentConfig

    FAILURE: ClassVar[type[RolloutError]] = AgentFailed


class SimpleResponsesAPIAgent(AggregateMetricsMixin, BaseResponsesAPIAgent):
    """Base class of agents. Implement `run` (a whole rollout) and `responses` (only the conversation)."""

    EPISODE_ROUTES: ClassVar[tuple[str, ...] | None] = None
    """Environment routes that the agent calls, besides those for sessions, tools and grading; None if unknown."""

    @cached_property
    def _nemo_gym_agent_sessions(self) -> AgentSessions:
        return AgentSessions(
            getattr(self.config, "name", type(self).__name__),
            set_up=self._seed_agent_session_state,
            close=self._close_agent_session_state,
            idle_s=getattr(self.config, "agent_session_idle_s", 21600.0),
        )

    @abstractmethod
    async def responses(self, *arguments: Any, **named: Any) -> object:
        """Continue a conversation, including its tool calls.

        Declare the parameters `(body)`, `(request, body)` or `(request, response, body)`.
        """

    @abstractmethod
    async def run(self, *arguments: Any, **named: Any) -> object:
        """Run one rollout and return the graded row. Declare the parameters `(body)` or `(request, body)`."""

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> AgentSessionState:
        """Set up a session and return its state. Override this method if the agent keeps state per session.

        If the setup fails after it has opened resources, raise `AgentSessionSetupError` with a state that holds them.
        """
        return AgentSessionState(request=body)

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse | None:
        """Release the state of a session, and return the response to its caller. Called once for each state."""
        return None

    def agent_session_state(self, request: Request) -> AgentSessionState | None:
        """Return the state of the session that a request's cookie identifies; None if no such session is open."""
        return self._nemo_gym_agent_sessions.state_of(self._agent_session_id_from_request(request))

    def _agent_session_id_from_request(self, request: Request) -> str | None:
        """Return the id of the session that a request's cookie identifies; None if no such session is open."""
        cookie = hooks().scope(request).get("session", {})
        return self._nemo_gym_agent_sessions.id_of(cookie.get(SESSION_ID_KEY, ""))

    def _require_agent_session(self, agent_session_id: str | None) -> AgentSessionState:
        """Return the state of an open session. Raise `HTTPException` 409 if there is none."""
        state = self._nemo_gym_agent_sessions.state_of(agent_session_id)
        if state is None:
            raise HTTPException(409, f"agent session {agent_session_id} is not open. POST {AGENT_SESSIONS_PATH} first")
        return state

    def effective_tool_accesses(self, given: AgentSessionState | Iterable[ToolAccess] = ()) -> list[ToolAccess]:
        """Return the configured `tool_accesses`. Those given, or given by a session, replace ones of the same name."""
        laid_over = given.request.tool_accesses if isinstance(given, AgentSessionState) else given
        return list({access.name: access for access in [*self.config.tool_accesses, *laid_over]}.values())

    async def seed_agent_session(self, request: Request, body: AgentSeedSessionRequest) -> AgentSeedSessionResponse:
        """Open a session. To keep state, override `_seed_agent_session_state` and `_close_agent_session_state`.

        An override of this method may declare the parameters `(body)` or `(request, body)`.
        """
        await self._nemo_gym_agent_sessions.open(body, session_id_of(request))
        return AgentSeedSessionResponse(agent_session_id=body.agent_session_id)

    async def close_agent_session(self, body: AgentCloseSessionRequest) -> AgentCloseSessionResponse:
        """Close a session, and return whether it was open, with its observations and cookies."""
        return await self._nemo_gym_agent_sessions.close(body)

    def session_beginnings(self) -> Container[str] | None:
        """Return the paths at which a session may begin; None (any path) if the agent does not keep state."""
        keeps_state = type(self)._seed_agent_session_state is not SimpleResponsesAPIAgent._seed_agent_session_state
        return SESSION_BEGINNINGS if keeps_state else None

    def background_tasks(self) -> list[Coroutine[object, object, None]]:
        return [*super().background_tasks(), self._nemo_gym_agent_sessions.reap()]

    async def close_owned(self) -> None:
        await self._nemo_gym_agent_sessions.drop_all()

    def compute_metrics(self, tasks: list[list[JsonObject]]) -> JsonObject:
        """Return additional metrics over the rollouts of each task. The default adds none."""
        return {}

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return metrics over all of this agent's graded rollouts."""
        if self.config.skip_verification:
            warnings.warn("verification was skipped, so there is nothing to aggregate", RuntimeWarning, stacklevel=2)
            return AggregateMetrics()
        return await super().aggregate_metrics(body)

    def setup_webserver(self) -> FastAPI:
        app = hooks().server(self).new_app()
        app.post(RESPONSES_PATH)(self.responses)
        route = app.router.routes[-1]
        if isinstance(route, FastRoute):
            # Show the rollout prefix in request URLs, because agents copy it to the URL of their model calls.
            route.shows_prefix = True
        hooks().list_with_prefix(app, self.responses)
        app.post("/run")(_for_its_rollout(self.run))
        route = app.router.routes[-1]
        if isinstance(route, FastRoute):
            # Free a long row's bytes unless an author's `run` may read them, because a rollout may last for hours.
            route.keeps_body = not type(self).run.__module__.startswith("nemo_gym.")
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.post(AGENT_SESSIONS_PATH)(self.seed_agent_session)
        app.post(CLOSE_AGENT_SESSION_PATH)(self.close_agent_session)
        accept_row_policies(self, app)
        return app

    def rollout_id_from_run(self, body: object) -> str | None:
        """Return the rollout id of a run request; None if capture is disabled."""
        if not self._capture_correlation_enabled():
            return None
        return maybe_rollout_id_from_run_body(body) or current_rollout_id()

    def url_path_for_run(self, path: str, body: object) -> str:
        """Return `path` with the prefix for capturing a rollout's calls, or `path` itself if capture is disabled."""
        rollout_id = self.rollout_id_from_run(body)
        if not rollout_id:
            return path
        return rollout_path_prefix(rollout_id, token_capture=self._token_id_capture_enabled()) + path

    def url_path_for_request(self, path: str, request: Request | None) -> str:
        """Return `path` with the rollout prefix of the request's own path, if it has one.

        The sender of the request thus decides whether further calls are captured.
        """
        scope = {} if request is None else hooks().scope(request)
        rollout_id = scope.get("path_params", {}).get(ROLLOUT_PARAMETER)
        if not isinstance(rollout_id, str):
            return path
        return rollout_path_prefix(rollout_id, token_capture=_asks_for_tokens(scope, rollout_id)) + path

    def base_url_for_run(self, base_url: str, body: object) -> str:
        """Return `base_url` for a third-party agent. Calls to the returned URL are captured if capture is enabled."""
        check_own_client(self)
        rollout_id = self.rollout_id_from_run(body)
        return apply_rollout_prefix(base_url, rollout_id, token_capture=self._token_id_capture_enabled())

    def resolve_model_base_url(self, name: str, rollout_id: str | None = None) -> str:
        """Return the `…/v1` URL of a model server, for agents with their own client.

        If capture is enabled, calls to this URL are captured under `rollout_id`.
        """
        check_own_client(self)
        url, captures_tokens = hooks().base_url(self.server_client, name), self._token_id_capture_enabled()
        return f"{apply_rollout_prefix(url, rollout_id, token_capture=captures_tokens)}/v1"

    def _model_call_capture_enabled(self) -> bool:
        return hooks().address_book(self.server_client).settings.observability_enabled

    def _token_id_capture_enabled(self) -> bool:
        capture = hooks().address_book(self.server_client).settings.token_id_capture
        return capture.enabled and (capture.all_agents or self.config.token_id_capture)

    def _capture_correlation_enabled(self) -> bool:
        return self._model_call_capture_enabled() or self._token_id_capture_enabled()


def _asks_for_tokens(scope: MutableMapping[str, Any], rollout_id: str) -> bool:
    """Return whether a request asks for token capture, by its path or by the prefix that was removed from it."""
    prefix = rollout_path_prefix(rollout_id, token_capture=True)
    return wants_tokens(scope) or f"{scope.get('path', '')}/".startswith(f"{prefix}/")


def _for_its_rollout(run: Method) -> Endpoint:
    """Return the `/run` endpoint. Calls that `run` makes carry the rollout id, even if only the row contains it."""
    handler = Handler.of(run)

    async def respond(request: Request, arguments: dict[str, object]) -> object:
        if handler.request_parameter is not None:
            arguments[handler.request_parameter] = request
        try:
            row = await request.json()
            if not isinstance(row, dict):
                raise TypeError(f"expected an object, found {type(row).__name__}")
            rollout_id = current_rollout_id() or Row(row).rollout_id
        except (TypeError, ValueError) as error:
            raise InvalidTask(f"the row's rollout id cannot be read: {error}") from error
        check_no_policy(row)
        with rollout_context(rollout_id), JudgeFailures() as failures, Unfinished() as unfinished:
            running = run(**arguments)
            # Free memory, because thousands of rollouts may run at once.
            arguments.clear()
            try:
                result = await running
            except BaseException:
                request.scope[CONVERSATION_SCOPE_KEY] = unfinished.so_far()
                raise
        return failures.written_into(result)

    return endpoint_of(handler, respond)

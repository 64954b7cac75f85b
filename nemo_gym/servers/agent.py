"""The base class of agent servers: they run one rollout from its row to its reward."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from fastapi import Body, FastAPI
from starlette.requests import Request

from nemo_gym.config.observability import is_enabled
from nemo_gym.config.published import get_first_server_config_dict
from nemo_gym.config.settings import BaseResponsesAPIAgentConfig
from nemo_gym.context.rollout_id import (
    ROLLOUT_PARAMETER,
    ROLLOUT_PREFIX,
    TOKEN_CAPTURE_SEGMENT,
    apply_rollout_prefix,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
    rollout_path_prefix,
)
from nemo_gym.errors import AgentFailed, InvalidTask
from nemo_gym.metrics import compute_aggregate_metrics
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.rollout import (
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
    AggregateMetrics,
    AggregateMetricsRequest,
    rollout_id_of_row,
)
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.judging import JudgeFailures
from nemo_gym.servers.name_clashes import hook_of
from nemo_gym.servers.tools.handlers import Handler
from nemo_gym.web.failures import ROLLOUT_ID_SCOPE_KEY
from nemo_gym.web.fast_routes import ListedRoute

__all__ = ["BaseResponsesAPIAgent", "Body", "SimpleResponsesAPIAgent"]

PUBLISHED_NAME = "nemo_gym.base_responses_api_agent"


class BaseResponsesAPIAgent(SimpleServer):
    """An agent server's settings."""

    config: BaseResponsesAPIAgentConfig

    FAILURE = AgentFailed


class SimpleResponsesAPIAgent(BaseResponsesAPIAgent):
    """Subclass it and write `run` (a whole rollout) and `responses` (the conversation alone)."""

    @abstractmethod
    async def responses(self, *arguments: Any, **named: Any) -> Any:
        """Answer a conversation, tools called: `(body)`, `(request, body)` or `(request, response, body)`."""

    @abstractmethod
    async def run(self, *arguments: Any, **named: Any) -> Any:
        """Run one rollout from its row and answer the graded row: `(body)` or `(request, body)`."""

    async def seed_agent_session(self, body: AgentSeedSessionRequest) -> AgentSeedSessionResponse:
        """Open a session; override it, `(body)` or `(request, body)`, where the agent keeps something of one."""
        return AgentSeedSessionResponse(agent_session_id=body.agent_session_id or uuid4().hex)

    async def close_agent_session(self, body: AgentCloseSessionRequest) -> AgentCloseSessionResponse:
        """Let go of what is kept of a session."""
        return AgentCloseSessionResponse(agent_session_id=body.agent_session_id)

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Metrics over all of this agent's graded rollouts."""
        if self.config.skip_verification:
            warnings.warn("verification was skipped, so there is nothing to aggregate", RuntimeWarning, stacklevel=2)
            return AggregateMetrics()
        return await asyncio.to_thread(compute_aggregate_metrics, body.verify_responses)

    def setup_webserver(self) -> FastAPI:
        """The app with the routes of an agent server."""
        app: FastAPI = hook_of(self, "new_app")()
        app.post(RESPONSES_PATH)(self.responses)
        for segment in ("", TOKEN_CAPTURE_SEGMENT):
            # The prefix is taken away before a route is looked for; these are for whoever lists the routes.
            prefixed = f"{ROLLOUT_PREFIX}{{{ROLLOUT_PARAMETER}}}{segment}/v1/responses"
            app.router.add_api_route(
                prefixed, self.responses, methods=["POST"], include_in_schema=False, route_class_override=ListedRoute
            )
        app.post("/run")(_for_its_rollout(self.run))
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.post("/v1/agent_sessions")(self.seed_agent_session)
        app.post("/v1/agent_sessions/close")(self.close_agent_session)
        return app

    def rollout_id_from_run(self, body: Any) -> str | None:
        """The id of the rollout that a run request names; None while nothing is captured under it."""
        if not self._capture_correlation_enabled():
            return None
        return maybe_rollout_id_from_run_body(body) or current_rollout_id()

    def url_path_for_run(self, path: str, body: Any) -> str:
        """The path under which a run's calls are captured; the path itself while nothing is captured."""
        return rollout_path_prefix(self.rollout_id_from_run(body)) + path

    def url_path_for_request(self, path: str, request: Request) -> str:
        """The same for a request that carries its rollout."""
        if not self._capture_correlation_enabled():
            return path
        return rollout_path_prefix(_rollout_id_of(request) or current_rollout_id()) + path

    def base_url_for_run(self, base_url: str, body: Any) -> str:
        """The same for a base URL handed to a foreign agent."""
        return apply_rollout_prefix(base_url, self.rollout_id_from_run(body))

    def resolve_model_base_url(self, name: str, rollout_id: str | None = None) -> str:
        """The `…/v1` address of a model server, for agents that bring their own client; captured under the id."""
        captured_under = rollout_id if self._capture_correlation_enabled() else None
        return f"{apply_rollout_prefix(self._base_url_of(name), captured_under)}/v1"

    def _base_url_of(self, name: str) -> str:
        # Tests of published folders replace this name where they import it.
        look_up = getattr(
            sys.modules.get(PUBLISHED_NAME), "get_first_server_config_dict", get_first_server_config_dict
        )
        try:
            settings = look_up(self.server_client.global_config_dict, name)
        except KeyError:
            host, port = self.server_client.address_of(name)
            settings = {"host": host, "port": port}
        return self.server_client._build_server_base_url(settings)

    def _model_call_capture_enabled(self) -> bool:
        return is_enabled(getattr(self.server_client, "global_config_dict", None))

    def _token_id_capture_enabled(self) -> bool:
        # Token ids come with the model server's answers; nothing is captured beside them.
        return False

    def _capture_correlation_enabled(self) -> bool:
        return self._model_call_capture_enabled() or self._token_id_capture_enabled()


def _rollout_id_of(request: Request) -> str | None:
    """By a route of its own, or as the middleware found it."""
    for told in (request.path_params.get(ROLLOUT_PARAMETER), request.scope.get(ROLLOUT_ID_SCOPE_KEY)):
        if isinstance(told, str):
            return told
    return None


def _rollout_id_in(row: Any) -> str | None:
    try:
        return rollout_id_of_row(row)
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"the row's rollout id: {error}") from error


def _for_its_rollout(run: Callable[..., Any]) -> Callable[..., Any]:
    """The `/run` endpoint: all of its calls carry the rollout's id, also where only the row tells it."""
    handler = Handler.of(run)
    request_name = handler.request_parameter or "nemo_gym_request"

    async def endpoint(**arguments: Any) -> Any:
        request: Request = arguments[request_name]
        if handler.request_parameter is None:
            del arguments[request_name]
        rollout_id = current_rollout_id() or _rollout_id_in(await request.json())
        with rollout_context(rollout_id), JudgeFailures() as failures:
            running = run(**arguments)
            arguments.clear()
            result = await running
        return failures.written_into(result)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in handler.signature.parameters.values()
    ]
    if handler.request_parameter is None:
        parameters.append(inspect.Parameter(request_name, inspect.Parameter.KEYWORD_ONLY, annotation=Request))
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=handler.signature.return_annotation
    )
    endpoint.__doc__ = run.__doc__
    return endpoint

"""Base class of resources servers: a task's tools, its state per rollout, and the reward."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, SupportsFloat, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from nemo_gym.calls.hooks import hooks
from nemo_gym.config.settings import BaseResourcesServerConfig
from nemo_gym.errors import EnvironmentFailed, JudgeFailed, SignatureError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.metrics import AggregateMetricsMixin, highest_k_metrics, subsets_of
from nemo_gym.schemas.mcp import normalize_tool_name
from nemo_gym.schemas.rollout import (
    ADDED_ONLY_HEADER,
    FAILURE_HEADER,
    GROUP_PATH,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyResponse,
    Graded,
    ReverifyMode,
)
from nemo_gym.schemas.row import UNGRADED
from nemo_gym.schemas.sessions import ResourcesCloseSessionResponse
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.group_verification import GroupVerifier, VerifiesGroups, fields_of, is_for_groups
from nemo_gym.servers.judging import failure_fields, mark_failed
from nemo_gym.servers.mcp.tools import CatchAll, McpTool
from nemo_gym.servers.sessions import SessionStore, session_id_of
from nemo_gym.servers.tools.handlers import Endpoint, Handler, bare, endpoint_of, place_of
from nemo_gym.servers.tools.tool import RESERVED_NAMES, Tool, add_tool_routes, tools_of
from nemo_gym.servers.verify_requests import leaves_response_to_us, loads_without_tokens
from nemo_gym.text import with_article
from nemo_gym.web.fast_routes import FastRoute
from nemo_gym.web.json_response import WrittenJson

ResultT = TypeVar("ResultT")

NOT_EMPTY = re.compile(rb'\{\s*"')
SESSION_IDLE_S = 3600.0
BEGINNINGS = frozenset({"/seed_session", "/reset"})
NEWER = frozenset({"/tools", "/close_session"})
"""Paths of newer routes. Older folders may use these paths for their own tools."""


class BaseResourcesServer(SimpleServer):
    config: BaseResourcesServerConfig

    FAILURE = EnvironmentFailed


class SimpleResourcesServer(VerifiesGroups, AggregateMetricsMixin, BaseResourcesServer):
    """Base class of resources servers. Implement `verify`, and mark the tools with `@tool`.

    `verify(body)` returns a number or a `BaseVerifyResponse`. If it returns a number or a result of
    `BaseVerifyResponse.grade`, the response repeats the whole request. An instance of your own response class is
    returned unchanged.

    Override `verify_group` in place of `verify` if a reward depends on the other rollouts of the task.
    """

    VERIFY_PATH: ClassVar[str] = "/verify"
    NOT_TOOLS: ClassVar[frozenset[str]] = RESERVED_NAMES
    """Names of POST routes that agents may call, but models must not."""
    EPISODE_ROUTES: ClassVar[tuple[str, ...]] = ()
    """Routes that an agent of this server must call, in addition to the routes for sessions, tools and grading."""
    KEY_METRICS: ClassVar[tuple[str, ...]] = ()
    """The headline metrics, such as `mean/reward` or `pass@{k}/accuracy` (for the largest k). Default: all means.

    `{subset}/pass@{k}/accuracy` adds one metric for each subset that `compute_subset_metrics` found.
    """

    # Do not name this attribute `_sessions`, because server folders define that name themselves.
    @cached_property
    def _nemo_gym_sessions(self) -> SessionStore:
        idle_s = hooks().setting(self.config, "session_idle_s")
        return SessionStore(SESSION_IDLE_S if idle_s is None else idle_s)

    @cached_property
    def sessions(self) -> SessionStore:
        """The states of the running rollouts."""
        return store_of(self)

    @abstractmethod
    async def verify(self, body: Any) -> object:
        """Return the reward of one rollout: a finite number, or a `BaseVerifyResponse`."""

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse | None:
        """Prepare a rollout's state from its row. Called once, before the model's first turn."""
        return BaseSeedSessionResponse()

    async def close_session(self, request: Request) -> ResourcesCloseSessionResponse | None:
        """Release what the server keeps for a rollout besides its `SessionState`, which is dropped automatically."""
        return None

    def get_key_metrics(self, agent_metrics: JsonObject) -> JsonObject:
        """Return the metrics that `KEY_METRICS` names, or every mean if it is empty."""
        if not self.KEY_METRICS:
            return super().get_key_metrics(agent_metrics)
        found: JsonObject = {}
        for name in _for_each_subset(self.KEY_METRICS, subsets_of(agent_metrics)):
            if "{k}" in name:
                pattern, _, score = name.rpartition("/")
                found |= highest_k_metrics(agent_metrics, pattern, [score])
            elif name in agent_metrics:
                found[name] = agent_metrics[name]
        return found

    def tools(self) -> list[Tool]:
        """Return the tools that the model may call. Override this if data define the tools, not methods."""
        return tools_of(self)

    def normalize_tool_name(self, name: str) -> str:
        """Return a tool's own name, without the prefix that an MCP client may have added."""
        return normalize_tool_name(name, self.config.name)

    def mcp_tools(self, harvested: list[McpTool], catchall: CatchAll | None) -> list[McpTool]:
        """Return the tools to expose over MCP. `harvested` are the tools found in the server's POST routes.

        Override this method to leave out some tools, or to name the tools of `catchall`, a route such as
        `/{tool_name}`. For example, return `[*harvested, catchall.tool("look", "Look at something.", schema)]`.
        """
        if catchall is not None:
            raise SignatureError(
                f"expose_tools_over_mcp: POST {catchall.path} accepts any tool name, so its tools are unknown. "
                f"Override {type(self).__name__}.mcp_tools(harvested, catchall) and name them: catchall.tool(…)"
            )
        return harvested

    def mcp_allowed_tools_for_session(self, seed_body: Any) -> Iterable[str] | None:
        """Return the names of the tools that a rollout may call over MCP; None allows all of them.

        `seed_body` is the row. Its type is the annotation of this parameter, or else the body type of `seed_session`.
        """
        return None

    def setup_webserver(self) -> FastAPI:
        app = hooks().server(self).new_app()
        app.post("/seed_session")(self._seed_endpoint())
        if is_for_groups(self):
            verifier = GroupVerifier(self, self.config.name)
            app.post(GROUP_PATH, include_in_schema=False)(_group_endpoint(verifier))
            _spare_tokens(app.router.routes[-1], verifier.body)
            app.post(self.VERIFY_PATH)(self._ungraded_endpoint(verifier))
        else:
            app.post(self.VERIFY_PATH)(self._verify_endpoint())
        _spare_tokens(app.router.routes[-1])
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.get("/reverify_mode")(self._reverify_mode)
        app.post("/close_session")(self._close_endpoint())
        add_tool_routes(app, listed_tools(self), store_of(self))
        hooks().let_routes_replace(app, NEWER)
        return app

    def session_beginnings(self) -> frozenset[str]:
        """Return the paths of the routes that begin a rollout, except paths that this server uses for tools."""
        return BEGINNINGS.difference(f"/{each.name}" for each in tools_of(self))

    def background_tasks(self) -> list[Coroutine[object, object, None]]:
        return [*super().background_tasks(), store_of(self).reap()]

    async def close_owned(self) -> None:
        await store_of(self).drop_all()

    async def _reverify_mode(self) -> ReverifyMode:
        """Return whether stored rollouts can be graded again without their session."""
        return getattr(type(self.config), "REVERIFY_MODE", ReverifyMode.UNKNOWN)

    async def _forget_rollout(self, request: Request) -> ResourcesCloseSessionResponse:
        """Drop the state of this rollout. Servers with `/step` also use this method as their route `/close`."""
        return ResourcesCloseSessionResponse(closed=await store_of(self).drop(session_id_of(request)))

    def _close_endpoint(self) -> Endpoint:
        handler, sessions = Handler.of(hooks().server(self).close_session), store_of(self)

        async def close(request: Request, arguments: dict[str, object]) -> object:
            try:
                closed = await handler.call(request, sessions, arguments)
            finally:
                dropped = await self._forget_rollout(request)
            return dropped if closed is None else closed

        return endpoint_of(handler, close, returns=object, has_optional_body=True)

    def _seed_endpoint(self) -> Endpoint:
        handler, sessions = Handler.of(self.seed_session), store_of(self)

        async def seed(request: Request, arguments: dict[str, object]) -> object:
            result = await in_new_session(sessions, request, lambda: handler.call(request, sessions, arguments))
            says_nothing = result is None or (type(result) is BaseSeedSessionResponse and not result.model_extra)
            return WrittenJson(b"{}") if says_nothing else result

        returns = handler.signature.return_annotation
        return endpoint_of(handler, seed, returns=object if returns in (None, handler.signature.empty) else returns)

    def _verify_endpoint(self) -> Endpoint:
        handler, sessions = Handler.of(self.verify), store_of(self)

        async def verify(request: Request, arguments: dict[str, object]) -> object:
            try:
                result = await handler.call(request, sessions, arguments)
            except JudgeFailed as error:
                await sessions.drop(session_id_of(request))
                return mark_failed(await _echo(request, failure_fields(error)), error)
            await sessions.drop(session_id_of(request))
            return await _graded(self, request, result)

        returns = handler.signature.return_annotation
        if returns in (float, int, bool):
            returns = BaseVerifyResponse
        return endpoint_of(handler, verify, returns=object if returns in (None, handler.signature.empty) else returns)

    def _ungraded_endpoint(self, verifier: GroupVerifier) -> Endpoint:
        """Return the `/verify` endpoint for `verify_group`. It ends the session and marks the rollout as ungraded."""
        sessions = store_of(self)

        async def verify(request: Request, body: Any) -> object:
            await sessions.drop(session_id_of(request))
            reply = await _echo(request, verifier.ungraded())
            reply.headers[FAILURE_HEADER] = UNGRADED
            return reply

        verify.__annotations__["body"] = verifier.body
        return verify


# These are functions instead of methods, because subclasses may define methods with the same names.


def listed_tools(server: SimpleServer) -> list[Tool]:
    """Return the tools of a server. Only resources servers can list tools that are not methods."""
    return hooks().server(server).tools() if isinstance(server, SimpleResourcesServer) else tools_of(server)


def _for_each_subset(names: Iterable[str], subsets: Sequence[str]) -> Iterator[str]:
    for name in names:
        if "{subset}" in name:
            yield from (name.replace("{subset}", subset) for subset in subsets)
        else:
            yield name


def _group_endpoint(verifier: GroupVerifier) -> Endpoint:
    """Return the endpoint that grades a group."""

    async def verify_group(body: Any) -> object:
        return WrittenJson(dump_json({"results": await verifier.results(body)}))

    verify_group.__annotations__["body"] = verifier.request
    return verify_group


def _spare_tokens(verify: BaseRoute, member: type[BaseModel] | None = None) -> None:
    """Leave long arrays of tokens in verify requests unparsed, if the type of the request body allows it.

    `member` is the type of each verify request if the body has those of a group.
    """
    if not isinstance(verify, FastRoute) or verify.body_field is None:
        return
    if leaves_response_to_us(member or bare(verify.body_field.field_info.annotation)):
        verify.loads_in_part = partial(loads_without_tokens, of_group=member is not None)


def store_of(server: SimpleResourcesServer) -> SessionStore:
    """Return the states of a server's rollouts, even if the server uses `sessions` for something else."""
    return server._nemo_gym_sessions


async def in_new_session(sessions: SessionStore, request: Request, begin: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Begin a rollout in a request's session. If `begin` fails, drop the rollout's state."""
    session_id = session_id_of(request)
    # Drop earlier state, because a new rollout must not use the state of an earlier rollout in the same session.
    await sessions.drop(session_id)
    try:
        return await begin()
    except BaseException:
        # Drop the state here, because the agent never receives this session's cookie and cannot close the session.
        await sessions.drop(session_id)
        raise


def failure_in(server: SimpleResourcesServer, problem: str, *, method: str = "") -> EnvironmentFailed:
    """Return an error that names the server, the problem and, if `method` is given, the method's file and line."""
    place = place_of(getattr(server, method, None))
    where = f"{Path(place).name}: " if place else ""
    return EnvironmentFailed(f"{server.config.name}: {where}{problem}", server=server.config.name)


def finite_reward(server: SimpleResourcesServer, reward: SupportsFloat, method: str = "verify") -> float:
    """Return a reward from a method as a float. Raise `EnvironmentFailed` if the reward is not finite."""
    number = float(reward)
    if not math.isfinite(number):
        raise failure_in(server, f"{method} returned the reward {number}, which is not finite", method=method)
    return number


async def _graded(server: SimpleResourcesServer, request: Request, result: object) -> object:
    """Return the response for a result of `verify`."""
    if isinstance(result, BaseVerifyResponse):
        finite_reward(server, result.reward)
        return await _echo(request, fields_of(result)) if isinstance(result, Graded) else result
    # Check this last, because a check of the protocol `SupportsFloat` is slow.
    if isinstance(result, (int, float, SupportsFloat)):
        return await _echo(request, {"reward": finite_reward(server, result)})
    if not isinstance(result, (Response, BaseModel, Mapping)):
        found = "nothing" if result is None else with_article(type(result).__name__)
        problem = f"verify returned {found}. Return a number or a BaseVerifyResponse"
        raise failure_in(server, problem, method="verify")
    return result


async def _echo(request: Request, added: Mapping[str, object]) -> Response:
    """Return the request's JSON object with the fields in `added`. The request's other fields stay unchanged.

    If the request has the header `ADDED_ONLY_HEADER`, return only the added fields: the caller has kept its request.
    """
    if ADDED_ONLY_HEADER in request.headers:
        return Response(dump_json(added), media_type="application/json", headers={ADDED_ONLY_HEADER: "true"})
    body = (await request.body()).strip()
    ending = dump_json(added)[1:]
    if NOT_EMPTY.match(body) and not any(f'"{name}"'.encode() in body for name in added):
        # The body does not contain these fields, so they can be appended without parsing the body.
        return WrittenJson(b"".join((body[:-1], b",", ending)))
    return WrittenJson(dump_json({**await request.json(), **added}))

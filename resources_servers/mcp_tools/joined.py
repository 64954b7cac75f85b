"""Join the tools of MCP servers to those of any resources server: `mcp_servers: {…}` in its block, or in a row."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson
from fastapi import FastAPI
from pydantic import TypeAdapter, ValidationError
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym import SESSION_ID_KEY, SimpleResourcesServer
from nemo_gym.errors import ConfigError
from nemo_gym.servers.resources import listed_tools, store_of
from nemo_gym.web.app import add_within_session
from nemo_gym.web.in_process import Answer, answer_of, whole_body
from resources_servers.mcp_tools.session import SESSION_TOOLS, Offered, Rollout, Toolbox
from resources_servers.mcp_tools.settings import Limits, McpServers

JOINED = "joined."
"""The beginning of the cookie: `GET /session_tools` also lists the tools of the row and of the environment."""
SEED, LIST = "/seed_session", "/session_tools"
SERVERS: TypeAdapter[McpServers] = TypeAdapter(McpServers)


def add_to(app: FastAPI, server: SimpleResourcesServer) -> None:
    """Add the tools of the server's `mcp_servers` to its app. Raise `ConfigError` for unusable settings."""
    config = server.config
    paths = {str(getattr(route, "path", "")) for route in app.routes}
    if "/step" in paths:
        raise ConfigError(f"{config.name}: mcp_servers: games with the route /step cannot use it. Remove it.")
    try:
        limits = Limits.model_validate(config.mcp_limits, extra="forbid")
    except ValidationError as error:
        known = ", ".join(Limits.model_fields)
        raise ConfigError(f"{config.name}: mcp_limits.{_first(error)}. The limits are {known}.") from error
    try:
        servers = SERVERS.validate_python(config.mcp_servers)
    except ValidationError as error:
        raise ConfigError(f"{config.name}: mcp_servers.{_first(error)}. Correct the block.") from error
    offered = Offered(config.name, servers, limits, rows_may_add=config.rows_may_add_servers)
    taken = frozenset(path.removeprefix("/") for path in paths)
    add_within_session(app, Middleware(JoinedTools, server=server, offered=offered, taken=taken))


class JoinedTools:
    """Middleware that starts the MCP servers of each session, lists all tools, and answers calls of theirs."""

    def __init__(
        self, app: ASGIApp, *, server: SimpleResourcesServer, offered: Offered, taken: Collection[str]
    ) -> None:
        """`taken` are the names of the server's own routes."""
        self.app, self.server, self.offered, self.taken = app, server, offered, taken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = (scope["method"], scope["path"]) if scope["type"] == "http" else ("", "")
        name = asked[1].removeprefix("/")
        if asked == ("POST", SEED):
            await (await self._seeded(scope, await whole_body(receive))).send(send)
        elif asked == ("GET", LIST):
            await JSONResponse(await self._listed(scope))(scope, receive, send)
        elif asked[0] == "POST" and name not in self.taken and name in self._toolbox(scope).tools:
            await (await self._called(Request(scope, receive), name))(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _seeded(self, scope: Scope, body: bytes) -> Answer:
        """Begin the environment's own session, then start the servers of the block and of the row."""
        answer = await answer_of(self.app, scope, body)
        if answer.status >= 400:
            return answer
        sessions, session_id = store_of(self.server), scope["session"][SESSION_ID_KEY]
        rollout = sessions.get(session_id, Rollout)
        try:
            row = orjson.loads(body)
            rollout.own_tools = (row.get("responses_create_params") or {}).get("tools") or []
            names = {str(each.get("name")) for each in rollout.own_tools}
            rollout.toolbox = Toolbox(names.union(self.taken))
            await self.offered.open(rollout.toolbox, self._added(row), {})
        except BaseException:
            # Close the servers here, because the agent never receives this session's cookie.
            await sessions.drop(session_id)
            raise
        return Answer(answer.status, [*answer.headers, (b"set-cookie", _cookie(rollout.toolbox))], answer.body)

    def _added(self, row: dict[str, Any]) -> McpServers:
        try:
            return SERVERS.validate_python(row.get("mcp_servers") or {})
        except ValidationError as error:
            raise self.offered.invalid(f"the row's mcp_servers.{_first(error)}. Fix the row") from error

    async def _listed(self, scope: Scope) -> list[Any]:
        """Return the tools of the row, or else those of the environment, and then those of the MCP servers."""
        rollout = store_of(self.server).get(scope["session"][SESSION_ID_KEY], Rollout)
        own = rollout.own_tools
        if not own:
            answer = await answer_of(self.app, scope, b"")
            own = orjson.loads(answer.body) if answer.status < 400 else []
        own = own or [each.definition for each in listed_tools(self.server)]
        return [*own, *self._toolbox(scope).definitions]

    async def _called(self, request: Request, name: str) -> Response:
        sessions, toolbox = store_of(self.server), self._toolbox(request.scope)
        with sessions.in_use(request.session[SESSION_ID_KEY]):
            response = await toolbox.tools[name].call(request, sessions, await request.body())
            if await toolbox.refresh():
                response.headers.append("set-cookie", _cookie(toolbox).decode())
        return response

    def _toolbox(self, scope: Scope) -> Toolbox:
        """Return the session's toolbox. Raise `OutOfTurn` if the session has not begun, or was idle for too long."""
        return store_of(self.server).get(scope["session"][SESSION_ID_KEY], Rollout).opened(self.server.config.name)


def _cookie(toolbox: Toolbox) -> bytes:
    return f"{SESSION_TOOLS}={JOINED}{toolbox.version}; Path=/; SameSite=lax".encode()


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"

"""Offer a resources server's tools over MCP at `/mcp`. MCP calls use the same routes and state as plain HTTP calls."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import Problem, failure_of_reply
from nemo_gym.errors import EnvironmentFailed, RolloutError, SignatureError
from nemo_gym.jsonl import dump_json
from nemo_gym.schemas.mcp import SESSION_TOKEN_HEADER
from nemo_gym.schemas.rollout import ROLLOUT_HEADER
from nemo_gym.servers.base import SimpleServer, context_of
from nemo_gym.servers.mcp.sdk import invalid_request, sdk_server
from nemo_gym.servers.mcp.session import McpSession, McpSessionMiddleware, SessionTokens
from nemo_gym.servers.mcp.tools import McpTool, by_name, harvest
from nemo_gym.servers.resources import SimpleResourcesServer, listed_tools, store_of
from nemo_gym.servers.tools.parts import ToolOutput, output_of
from nemo_gym.servers.tools.tool import RESERVED_NAMES
from nemo_gym.web.app import add_within_session
from nemo_gym.web.failures import ROLLOUT_ID_SCOPE_KEY
from nemo_gym.web.in_process import Answer, answer_of, post_scope
from nemo_gym.web.session_cookies import lost_with_earlier_life, session_cookie

MCP_PATH = "/mcp"
_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+);base64,(?P<data>.+)", re.DOTALL)


def expose_if_asked(server: SimpleServer, app: FastAPI) -> None:
    """Serve a server's tools at `/mcp` too if its settings contain `expose_tools_over_mcp: true`.

    Raise `ConfigError` if the MCP SDK is missing, and `SignatureError` for a route that cannot be a tool.
    """
    if not getattr(server.config, "expose_tools_over_mcp", False) or getattr(app.state, "has_mcp", False):
        return
    cls = type(server).__name__
    if not isinstance(server, SimpleResourcesServer):
        raise SignatureError(
            f"expose_tools_over_mcp: only a SimpleResourcesServer has tools, and {cls} is not one. Remove the setting"
        )
    if any(getattr(route, "path", None) == MCP_PATH for route in app.routes):
        raise SignatureError(
            f"expose_tools_over_mcp: {cls} already has a route {MCP_PATH}. Give the route another path"
        )
    app.state.has_mcp = True
    own = {path.removeprefix("/") for path in hooks().replaced_paths(app)}
    found = harvest(app, listed_tools(server), not_tools=server.NOT_TOOLS - own)
    tools = by_name(server.mcp_tools(found.tools, found.catch_all), cls, reserved=RESERVED_NAMES - own)
    # All servers of a run share a secret. The server's name in the key makes a token valid for this server only.
    context = context_of(server)
    tokens = SessionTokens(f"{server.get_session_middleware_key()} {context.cookie_secret}", context.life)
    app.state.admits = partial(_admits, tokens)
    app.router.routes.insert(0, Route(MCP_PATH, _McpEndpoint(server, app, tools, tokens), methods=["POST"]))
    add_within_session(app, Middleware(McpSessionMiddleware, server=server, tokens=tokens, tools=tuple(tools)))


def _admits(tokens: SessionTokens, scope: Scope) -> bool:
    """Return whether a call is an MCP call with a session token of this server. Such a call needs no run token."""
    if not str(scope["path"]).endswith(MCP_PATH):
        return False
    wanted = SESSION_TOKEN_HEADER.lower().encode()
    return any(name == wanted and tokens.read(value.decode("latin-1")) is not None for name, value in scope["headers"])


class _McpEndpoint:
    """An ASGI app for MCP over Streamable HTTP, without state between requests and with JSON responses."""

    def __init__(
        self, server: SimpleResourcesServer, app: FastAPI, tools: dict[str, McpTool], tokens: SessionTokens
    ) -> None:
        self.server = server
        self.app = app
        self.tools = tools
        self.tokens = tokens
        self._sdk_server = sdk_server(server.config.name, self._list_tools, self._call_tool, self._schema_of)
        # Raise the log level, because the SDK logs each request three times at the level INFO.
        logging.getLogger("mcp").setLevel(logging.WARNING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # Read the body here, because the SDK would log a caller that hangs up as an error.
        messages = [{"type": "http.request", "body": await Request(scope, receive).body(), "more_body": False}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        # Create one manager per request, because a manager must end in the task that started it.
        manager = StreamableHTTPSessionManager(self._sdk_server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive_again, send)

    def _schema_of(self, name: str) -> Mapping[str, object] | None:
        return self.tools[name].parameters if name in self.tools else None

    async def _list_tools(self, request: Request) -> Mapping[str, object]:
        session = self._session_of(request)
        if session is None:
            raise invalid_request(self._lacks_token(request))
        listed = [each for each in self.tools.values() if session.may_call(each.name)]
        return {
            "tools": [
                {"name": each.name, "description": each.description, "inputSchema": each.parameters} for each in listed
            ]
        }

    async def _call_tool(self, request: Request, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        session = self._session_of(request)
        if session is None:
            # Return the problem as a tool result, because clients may hide the text of a protocol error.
            return _text(self._lacks_token(request), is_error=True)
        tool = self.tools.get(name)
        if tool is None or not session.may_call(tool.name):
            known = [name for name in self.tools if session.may_call(name)]
            return _text(f"Unknown tool {name!r}. The tools are: {', '.join(known) or 'none'}.", is_error=True)
        if session.is_lost:
            return _failed(tool, lost_with_earlier_life(self.server.config.name))
        answer = await self._called(tool, arguments, session, request)
        if answer.status < 500:
            return _result(answer)
        server = self.server.config.name
        failure = failure_of_reply(
            answer.status, answer.body, server=server, during=f"tool '{tool.name}'", otherwise=EnvironmentFailed
        )
        store_of(self.server).fail(session.session_id, failure)
        return _failed(tool, failure)

    async def _called(
        self, tool: McpTool, arguments: Mapping[str, object], session: McpSession, request: Request
    ) -> Answer:
        """Call the tool's own route, with all of its middleware, for this session."""
        cookie = session_cookie(
            self.server.get_session_middleware_key(), context_of(self.server).cookie_secret, session.session_id
        )
        headers = [(b"cookie", cookie.encode())]
        rollout_id = request.scope.get(ROLLOUT_ID_SCOPE_KEY)
        if rollout_id is not None:
            headers.append((ROLLOUT_HEADER.encode(), rollout_id.encode()))
        scope = post_scope(tool.path, headers, like=request.scope)
        return await answer_of(self.app, scope, json.dumps(arguments).encode())

    def _session_of(self, request: Request) -> McpSession | None:
        token = request.headers.get(SESSION_TOKEN_HEADER)
        return self.tokens.read(token) if token else None

    def _lacks_token(self, request: Request) -> str:
        problem = "is not a token of this server" if request.headers.get(SESSION_TOKEN_HEADER) else "is missing"
        return (
            f"{self.server.config.name}: the header {SESSION_TOKEN_HEADER} {problem}. With every request, send the "
            "headers from the field 'mcp' of the response to /seed_session."
        )


def _result(answer: Answer) -> Mapping[str, object]:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
    return {"content": content_of(output_of(answer.body, headers)), "isError": answer.status >= 400}


def _text(text: str, *, is_error: bool) -> Mapping[str, object]:
    return {"content": [text_block(text)], "isError": is_error}


def _failed(tool: McpTool, failure: RolloutError) -> Mapping[str, object]:
    # Put the cause into `_meta` for the agent, not into the text for the model, because the model cannot fix it.
    result = _text(f"The tool {tool.name} does not work. This attempt will not be graded.", is_error=True)
    return {**result, "_meta": {"nemo_gym/problem": Problem.of_error(failure).model_dump(mode="json")}}


def content_of(output: ToolOutput) -> list[Mapping[str, object]]:
    """Convert a tool's output to MCP blocks. A part without an MCP form, such as an image URL, becomes JSON text."""
    return [text_block(output)] if isinstance(output, str) else [_block(part) for part in output]


def text_block(text: str) -> Mapping[str, object]:
    return {"type": "text", "text": text}


def _block(part: object) -> Mapping[str, object]:
    match part:
        case {"type": "input_text", "text": str(text)}:
            return text_block(text)
        case {"type": "input_image", "image_url": str(url)} if image := _DATA_URL.fullmatch(url):
            return {"type": "image", "data": image["data"], "mimeType": image["type"]}
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(name)}}:
            return {"type": "audio", "data": data, "mimeType": f"audio/{name}"}
    return text_block(dump_json(part).decode())

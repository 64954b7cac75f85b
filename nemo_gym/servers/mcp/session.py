"""Sessions over MCP: the token that `/seed_session` issues, and the check for failed tools before `/verify`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import get_origin

import itsdangerous
import orjson
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at, objects_in
from nemo_gym.schemas.mcp import MCP_METADATA_KEY, SESSION_TOKEN_HEADER, MCPServerMetadata
from nemo_gym.schemas.shapes import Item
from nemo_gym.servers.resources import SimpleResourcesServer, failure_in, store_of
from nemo_gym.servers.tools.handlers import Handler, is_class_of
from nemo_gym.text import problems_in, with_article
from nemo_gym.web.in_process import Answer, answer_of, whole_body
from nemo_gym.web.session_cookies import SESSION_ID_KEY, is_of_earlier_life

TOKEN_SALT = "nemo-gym-mcp-session-token"
SEED_PATH = "/seed_session"


@dataclass(frozen=True)
class McpSession:
    """A rollout's session, as encoded in an MCP session token."""

    session_id: str
    allowed: frozenset[str] | None
    """The tools that this session may call; None allows all of them."""
    is_lost: bool = False
    """Whether the session began before the process restarted, so that its state is gone."""

    def may_call(self, name: str) -> bool:
        return self.allowed is None or name in self.allowed


class SessionTokens:
    """The tokens that an agent sends with each MCP request instead of a cookie.

    `life` identifies the current start of the server process. If it is set, tokens contain it after the session id.
    """

    def __init__(self, secret: str, life: str | None = None) -> None:
        self._life = life
        self._serializer = itsdangerous.URLSafeSerializer(secret, salt=TOKEN_SALT)

    def issue(self, session: McpSession) -> str:
        tools = None if session.allowed is None else sorted(session.allowed)
        marked = session.session_id if self._life is None else f"{session.session_id}@{self._life}"
        return str(self._serializer.dumps({"sid": marked, "tools": tools}))

    def read(self, token: str) -> McpSession | None:
        """Return the session of a token; None if this server did not issue the token."""
        try:
            content = self._serializer.loads(token)
        except itsdangerous.BadData:
            return None
        allowed = None if content["tools"] is None else frozenset(content["tools"])
        if self._life is None:
            return McpSession(content["sid"], allowed)
        session_id, _, mark = content["sid"].rpartition("@")
        return McpSession(session_id, allowed, is_lost=is_of_earlier_life(mark, self._life))


class McpSessionMiddleware:
    """Middleware for `/seed_session` and `/verify` of a server with tools over MCP.

    It adds the MCP path and token to the response of `/seed_session`. For `/verify`, it removes the prefix that an
    agent's MCP client may have added to tool names. It fails `/verify` if a tool of the rollout failed over MCP,
    because the agent may have ignored that failure.
    """

    def __init__(
        self, app: ASGIApp, *, server: SimpleResourcesServer, tokens: SessionTokens, tools: Collection[str]
    ) -> None:
        self.app = app
        self.server = server
        self.tokens = tokens
        self.tools = tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        handlers = {SEED_PATH: self._seeded, self.server.VERIFY_PATH: self._verified}
        if is_post and (handle := handlers.get(scope["path"])):
            await (await handle(scope, await whole_body(receive))).send(send)
        else:
            await self.app(scope, receive, send)

    async def _seeded(self, scope: Scope, body: bytes) -> Answer:
        answer = await answer_of(self.app, scope, body)
        if answer.status >= 400:
            return answer
        session_id = scope["session"][SESSION_ID_KEY]
        try:
            seeded = orjson.loads(answer.body) or {}
            token = self.tokens.issue(McpSession(session_id, self._allowed(json.loads(body))))
            metadata = MCPServerMetadata(server_name=self.server.config.name, headers={SESSION_TOKEN_HEADER: token})
            return answer.with_body(orjson.dumps({**seeded, MCP_METADATA_KEY: metadata.model_dump()}))
        except BaseException:
            # Drop the state here, because the agent never receives this session's cookie and cannot close the session.
            await store_of(self.server).drop(session_id)
            raise

    async def _verified(self, scope: Scope, body: bytes) -> Answer:
        session_id = scope["session"][SESSION_ID_KEY]
        failure = store_of(self.server).failure_of(session_id)
        if failure is not None:
            await store_of(self.server).drop(session_id)
            raise failure
        request = _json_object(body)
        renamed = _rename_calls(request, self.server.normalize_tool_name)
        if not renamed:
            return await answer_of(self.app, scope, body)
        answer = await answer_of(self.app, scope, orjson.dumps(request))
        response = _json_object(answer.body)
        for position, call in enumerate(_calls_of(response)):
            original = renamed.get(position)
            if original is not None and call["name"] == self.server.normalize_tool_name(original):
                call["name"] = original
        return answer.with_body(orjson.dumps(response)) if response else answer

    def _allowed(self, row: Mapping[str, object]) -> frozenset[str] | None:
        names = self.server.mcp_allowed_tools_for_session(_typed_row(self.server, row))
        if names is None:
            return None
        allowed = frozenset(names)
        unknown = sorted(allowed.difference(self.tools))
        if unknown:
            raise failure_in(
                self.server,
                f"mcp_allowed_tools_for_session returned unknown tools: {', '.join(map(repr, unknown))}. "
                f"The tools are: {', '.join(self.tools)}",
                method="mcp_allowed_tools_for_session",
            )
        return allowed


def _typed_row(server: SimpleResourcesServer, row: Mapping[str, object]) -> object:
    """Return the row as an instance of the class that `mcp_allowed_tools_for_session` takes.

    If the method does not declare a class, use the one that `seed_session` takes. If neither does, return the row.
    """
    for method in (server.mcp_allowed_tools_for_session, server.seed_session):
        for parameter in Handler.of(method).open_parameters:
            kind = get_origin(parameter.annotation) or parameter.annotation
            if kind is dict:
                return row
            if is_class_of(kind, BaseModel):
                try:
                    return kind.model_validate(row)
                except ValidationError as error:
                    problem = f"the row is not {with_article(kind.__name__)}: {problems_in(error)}"
                    raise failure_in(server, problem) from error
    return row


def _rename_calls(body: Mapping[str, object], own_name: Callable[[str], str]) -> dict[int, str]:
    """Replace the names of a response's calls with the tools' own names. Return the old names by position."""
    renamed = {}
    for position, call in enumerate(_calls_of(body)):
        name = own_name(call["name"])
        if name != call["name"]:
            renamed[position] = call["name"]
            call["name"] = name
    return renamed


def _calls_of(body: Mapping[str, object]) -> list[Item]:
    """Return the tool calls in a body's `response`. Skip malformed parts, because `/verify` itself rejects them."""
    output = objects_in(object_at(body, "response").get("output"))
    return [item for item in output if item.get("type") == "function_call" and isinstance(item.get("name"), str)]


def _json_object(body: bytes) -> JsonObject:
    with suppress(orjson.JSONDecodeError):
        if isinstance(parsed := orjson.loads(body), dict):
            return parsed
    return {}

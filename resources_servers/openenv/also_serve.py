"""Serve any resources server to clients of OpenEnv: `also_serve: [openenv]`."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

import orjson
from aiohttp import WSMessage, WSMsgType, web
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nemo_gym import DataError, Overloaded, RolloutError, SimpleResourcesServer, __version__
from nemo_gym.errors import SignatureError
from nemo_gym.jsonl import dump_json
from nemo_gym.servers.mcp.endpoint import content_of
from nemo_gym.web.in_process import OWN_CALL_SCOPE_KEY, answer_of, post_scope
from resources_servers.ors.also_serve import Added, add_task_routes
from resources_servers.ors.episodes import Episodes, Json, Refused

logger = logging.getLogger(__name__)

ADMITTED = "/also_serve/openenv/admitted"
MESSAGE_BYTES = 16 * 1024 * 1024
"""The maximum size of a message, unless the server sets `max_request_bytes`."""
WAITING = 1
"""The most messages that are kept while an earlier one is answered, because each may be large."""
HEARTBEAT_S, SEND_S, CLOSE_S = 30.0, 60.0, 2.0
CODES = {"turn": "EXECUTION_ERROR", "task": "VALIDATION_ERROR", "session": "SESSION_ERROR"}
PARSE, INVALID, UNKNOWN_METHOD, PARAMS, INTERNAL, SERVER = -32700, -32600, -32601, -32602, -32603, -32000
ACTION = {
    "title": "Action",
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["call_tool", "list_tools", "submit"], "default": "call_tool"},
        "tool_name": {"type": "string", "description": "For call_tool: the name of the tool."},
        "arguments": {"type": "object", "description": "For call_tool: the arguments."},
        "answer": {"type": "string", "description": "For submit: the answer. It ends the episode."},
        "metadata": {"type": "object"},
    },
    "required": ["type"],
}
OPEN = {"type": "object", "additionalProperties": True}


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str
    data: Json = Field(default_factory=dict)


class Action(BaseModel):
    """One step: a list of the tools, a call of one, or the answer."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["call_tool", "list_tools", "submit"] = "call_tool"
    tool_name: str = ""
    arguments: Json = Field(default_factory=dict)
    answer: str = ""
    metadata: Json = Field(default_factory=dict)

    @field_validator("arguments", mode="before")
    @classmethod
    def _of_text(cls, given: object) -> object:
        return orjson.loads(given) if isinstance(given, str) else given


class Rpc(BaseModel):
    model_config = ConfigDict(extra="forbid")

    jsonrpc: Literal["2.0"]
    method: str
    params: Json = Field(default_factory=dict)
    id: str | int | None = None


class _Ended(Exception):
    """The end of a connection, after a last message if there is one."""

    def __init__(self, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.code = code


class _Link:
    """A connection, and its session. A session of a client's own making is not ended with the connection."""

    def __init__(self, sid: str = "") -> None:
        self.sid, self.is_attached = sid, bool(sid)
        self.episode_id: str | None = None


def add_to(app: FastAPI, server: SimpleResourcesServer) -> None:
    """Add the routes of OpenEnv to a server's app."""
    if getattr(server.config, "expose_tools_over_mcp", False):
        raise SignatureError("also_serve: openenv has its own route /mcp. Remove expose_tools_over_mcp or openenv")
    served = OpenEnv(app, server, add_task_routes(app, server))
    with Added(app, server) as added:
        added.get(ADMITTED, served.admitted)
        added.get("/ws", served.only_sockets)
        added.get("/health", served.health)
        added.get("/metadata", served.metadata)
        added.get("/schema", served.schema)
        added.post("/mcp", served.mcp)
    app.websockets = served.protocol  # type: ignore[attr-defined]
    app.router.on_startup.append(served.start)
    app.router.on_shutdown.append(served.stop)


class OpenEnv:
    """The routes and WebSockets of OpenEnv, for one server."""

    def __init__(self, app: FastAPI, server: SimpleResourcesServer, episodes: Episodes) -> None:
        self.app, self.server, self.episodes = app, server, episodes
        self.most_bytes = server.config.max_request_bytes or MESSAGE_BYTES
        self.idle_s = server.config.session_idle_s
        self._sockets: web.Server[web.BaseRequest] | None = None

    async def start(self) -> None:
        self._sockets = web.Server(self._connected, access_log=None)

    async def stop(self) -> None:
        if self._sockets is not None:
            await self._sockets.shutdown(CLOSE_S)

    def protocol(self, config: Any, server_state: Any, app_state: Any) -> asyncio.Protocol:
        """Return the protocol to which uvicorn passes a connection that asks for a WebSocket."""
        assert self._sockets is not None
        return self._sockets()

    async def admitted(self) -> Json:
        return {"status": "admitted"}

    async def only_sockets(self) -> PlainTextResponse:
        return PlainTextResponse("This route is a WebSocket.", 426, {"upgrade": "websocket"})

    async def health(self) -> Json:
        return {"status": "healthy"}

    async def metadata(self) -> Json:
        about = (type(self.server).__doc__ or "").strip().partition("\n")[0]
        return {"name": self.episodes.name, "description": about, "version": __version__}

    async def schema(self) -> Json:
        return {"action": ACTION, "observation": OPEN, "reset_observation": OPEN, "state": OPEN}

    async def mcp(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._rpc(await request.body(), ""))

    async def _connected(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve a connection until its client leaves, is idle for too long, or its session has failed."""
        if (refusal := await self._refusal(request)) is not None:
            # Close the connection, because only WebSockets are served on it from now on.
            refusal.force_close()
            return refusal
        socket = web.WebSocketResponse(max_msg_size=self.most_bytes, heartbeat=HEARTBEAT_S, compress=False)
        await socket.prepare(request)
        link = _Link(request.query.get("session_id", "") if request.path == "/ws" else "")
        read: asyncio.Queue[WSMessage] = asyncio.Queue(WAITING)
        reader = asyncio.create_task(_read(socket, read))
        answer = self._answered if request.path == "/ws" else self._answered_rpc
        try:
            await self._begin(link)
            while True:
                message = await asyncio.wait_for(read.get(), self.idle_s)
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                text = await self._while_connected(answer(link, message.data), reader)
                await asyncio.wait_for(socket.send_str(text), SEND_S)
        except _Ended as end:
            if end.code:
                with suppress(ConnectionError, TimeoutError):
                    await asyncio.wait_for(socket.send_str(_error(end.code, str(end))), SEND_S)
        except (ConnectionError, TimeoutError) as error:
            logger.info("a connection of OpenEnv ended: %s", type(error).__name__)
        finally:
            reader.cancel()
            # Shield it, because the server may cancel this task while it stops.
            await asyncio.shield(asyncio.create_task(self._left(link)))
            with suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(socket.close(), CLOSE_S)
        return socket

    async def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        """Return the reply to a client that lacks the run's token, or is a foreign web page; None if it may pass."""
        if request.path not in ("/ws", "/mcp"):
            return web.Response(status=404, text="The WebSockets of this server are /ws and /mcp.")
        headers = [(name.lower(), value) for name, value in request.raw_headers]
        scope = post_scope(ADMITTED, [], like={"http_version": "1.1", "scheme": "http"})
        own = request.transport.get_extra_info("sockname") if request.transport is not None else None
        client = (request.remote, 0) if request.remote else None
        scope |= {"method": "GET", "headers": headers, "client": client, "server": own if client else None}
        del scope[OWN_CALL_SCOPE_KEY]
        answer = await answer_of(self.app, scope, b"")
        if answer.status == 200:
            return None
        return web.Response(status=answer.status, body=answer.body, content_type="application/problem+json")

    async def _while_connected(self, answering: Awaitable[str], reader: asyncio.Task[None]) -> str:
        """Return an answer. Stop waiting for it if the client leaves, or after `session_idle_s`."""
        task = asyncio.ensure_future(answering)
        try:
            await asyncio.wait({task, reader}, timeout=self.idle_s, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Ended if reader.done() else _Ended("SESSION_ERROR", f"no result within {self.idle_s:g} s")
            return task.result()
        finally:
            task.cancel()

    async def _begin(self, link: _Link) -> None:
        try:
            if link.is_attached:
                await self.episodes.ask(link.sid, "attach")
            else:
                link.sid = await self.episodes.open()
        except Overloaded as error:
            raise _Ended("CAPACITY_REACHED", str(error)) from error
        except (Refused, RolloutError) as error:
            link.sid = ""
            raise _Ended("SESSION_ERROR", str(error)) from error

    async def _left(self, link: _Link) -> None:
        if link.sid:
            try:
                await self.episodes.ask(link.sid, "detach" if link.is_attached else "close", is_own=True)
            except (Refused, RolloutError) as error:
                logger.info("a session of OpenEnv was not closed: %s", error)

    async def _answered(self, link: _Link, data: str | bytes) -> str:
        """Return the reply to a message. Raise `_Ended` if the session is over."""
        try:
            given = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            return _error("INVALID_JSON", f"Invalid JSON: {error}")
        try:
            message = Message.model_validate(given)
            if message.type == "close":
                raise _Ended
            if message.type == "mcp":
                return _frame("mcp", await self._rpc(message.data, link.sid))
            replies: Mapping[str, Callable[[_Link, Json], Awaitable[str]]] = {
                "reset": self._reset, "step": self._step, "state": self._state,
            }  # fmt: skip
            if message.type not in replies:
                return _error("UNKNOWN_TYPE", f"Unknown message type: {message.type:.80}")
            return await replies[message.type](link, message.data)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            return _error("VALIDATION_ERROR", "Invalid message", errors=problems)
        except Refused as error:
            if error.code == "session":
                raise _Ended("SESSION_ERROR", str(error)) from error
            return _error(CODES[error.code], str(error))

    async def _answered_rpc(self, link: _Link, data: str | bytes) -> str:
        return dump_json(await self._rpc(data, link.sid)).decode()

    async def _reset(self, link: _Link, data: Json) -> str:
        try:
            about = await self.episodes.ask(link.sid, "begin", data)
        except (DataError, RolloutError) as error:
            # No episode has begun, so there is nothing that could be graded. The client may try another task.
            return _error("EXECUTION_ERROR", str(error))
        split, index = about["place"]
        given = data.get("episode_id")
        link.episode_id = given if isinstance(given, str) else f"{split}-{index}"
        names = [each["name"] for each in about["tools"]]
        # Not `tools`: clients would take the observation for a list of tools, and drop the prompt.
        observation = {"prompt": about["prompt"], "tool_names": names, "metadata": {"split": split, "index": index}}
        return _observed(observation)

    async def _step(self, link: _Link, data: Json) -> str:
        action = Action.model_validate(data)
        try:
            if action.type == "list_tools":
                tools = [_tool(each, "input_schema") for each in await self._tools(link.sid)]
                return _observed({"tools": tools, "metadata": {}})
            name, arguments = action.tool_name, action.arguments
            if action.type == "submit":
                name, arguments = (await self._tools(link.sid))[-1]["name"], {"answer": action.answer}
            result = await self.episodes.ask(link.sid, "call", {"name": name, "arguments": arguments})
        except RolloutError as error:
            # An error of the action alone would be shown to the model, and the rollout would be graded.
            raise _Ended("SESSION_ERROR", str(error)) from error
        unknown = {"error_type": "tool_not_found", "message": result["output"]} if result["is_unknown"] else None
        observation = {"tool_name": name, "result": _result(result), "error": unknown, "metadata": {}}
        return _observed(observation, result["reward"], done=result["done"])

    async def _state(self, link: _Link, _: Json) -> str:
        about = await self.episodes.ask(link.sid, "about")
        split, index = about["place"] or (None, None)
        state = {"episode_id": link.episode_id, "step_count": about["steps"], "split": split, "index": index}
        return _frame("state", {**state, "done": about["is_over"]})

    async def _tools(self, sid: str) -> list[Json]:
        about = await self.episodes.ask(sid, "about") if sid else {"tools": []}
        return about["tools"] or self.episodes.listed()

    async def _rpc(self, given: bytes | str | Json, own: str) -> Json:
        """Return the reply to a request of JSON-RPC. `own` is the session of the connection, if there is one."""
        try:
            asked = Rpc.model_validate(given if isinstance(given, dict) else orjson.loads(given))
        except ValidationError as error:
            return _rpc_error(None, INVALID, f"Invalid request: {error.errors()[0]['msg']}")
        except orjson.JSONDecodeError:
            return _rpc_error(None, PARSE, "Parse error")
        methods: Mapping[str, Callable[[Json, str], Awaitable[Json]]] = {
            "openenv/session/create": self._create, "openenv/session/close": self._close,
            "tools/list": self._list, "tools/call": self._call,
        }  # fmt: skip
        if asked.method not in methods:
            return _rpc_error(asked.id, UNKNOWN_METHOD, f"Method not found: {asked.method:.80}")
        try:
            return {"jsonrpc": "2.0", "id": asked.id, "result": await methods[asked.method](asked.params, own)}
        except Overloaded as error:
            return _rpc_error(asked.id, SERVER, str(error))
        except RolloutError as error:
            return _rpc_error(asked.id, INTERNAL, str(error))
        except Refused as error:
            return _rpc_error(asked.id, PARAMS if error.code == "session" else INVALID, str(error))

    async def _create(self, _: Json, own: str) -> Json:
        return {"session_id": own or await self.episodes.open()}

    async def _close(self, params: Json, own: str) -> Json:
        sid = _text_in(params, "session_id")
        if sid == own:
            raise Refused("the session of this connection ends with the connection")
        closed = await self.episodes.ask(sid, "close_detached")
        return {"session_id": sid, **closed}

    async def _list(self, params: Json, own: str) -> Json:
        sid = own or (_text_in(params, "session_id") if "session_id" in params else "")
        return {"tools": [_tool(each, "inputSchema") for each in await self._tools(sid)]}

    async def _call(self, params: Json, own: str) -> Json:
        arguments = params.get("arguments", {})
        if not isinstance(arguments, dict):
            raise Refused("arguments: expected an object", "session")
        sid, name = own or _text_in(params, "session_id"), _text_in(params, "name")
        return _result(await self.episodes.ask(sid, "call", {"name": name, "arguments": arguments}))


async def _read(socket: web.WebSocketResponse, read: asyncio.Queue[WSMessage]) -> None:
    """Read messages until the client leaves. Pings are answered while a message is worked on."""
    while True:
        message = await socket.receive()
        await read.put(message)
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return


def _text_in(params: Json, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise Refused(f"{name}: expected a text", "session")
    return value


def _tool(definition: Json, schema: str) -> Json:
    about = definition.get("description") or ""
    return {
        "name": definition["name"],
        "description": about,
        schema: definition.get("parameters") or {"type": "object"},
    }


def _result(called: Json) -> Json:
    """Return a tool's output as FastMCP does."""
    data = called["output"]
    if called["done"]:
        data = {"reward": called["reward"], "done": True}
    content = content_of(called["output"])
    return {"content": content, "structured_content": None, "data": data, "is_error": called["is_error"]}


def _observed(observation: Json, reward: float | None = None, *, done: bool = False) -> str:
    assert reward is None or math.isfinite(reward)
    data: Json = {"observation": observation, "reward": reward, "done": done}
    if observation["metadata"]:
        data["metadata"] = observation["metadata"]
    return _frame("observation", data)


def _error(code: str, message: str, **more: Any) -> str:
    return _frame("error", {"message": message, "code": code, **more})


def _frame(kind: str, data: Any) -> str:
    return dump_json({"type": kind, "data": data}).decode()


def _rpc_error(request_id: str | int | None, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, "data": None}}

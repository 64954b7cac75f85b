"""A small OpenEnv server for tests. A script answers each message, so it can also break the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

STEP_SCHEMA = {
    "type": "object",
    "properties": {"move": {"type": "string"}, "metadata": {"type": "object"}},
    "required": ["move"],
}
MCP_SCHEMA = {"type": "object", "properties": {"metadata": {"type": "object"}}}
TOOLS = [
    {
        "name": "add",
        "description": "Add.",
        "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
    }
]

Socket = web.WebSocketResponse
Answer = Callable[[Socket, dict[str, Any]], Awaitable[None]]


def observation(fields: Mapping[str, Any], reward: Any = None, *, done: bool = False) -> str:
    return json.dumps({"type": "observation", "data": {"observation": fields, "reward": reward, "done": done}})


def error(code: str, message: str = "no", **more: Any) -> str:
    return json.dumps({"type": "error", "data": {"code": code, "message": message, **more}})


class Stub:
    """The running server: its address, and what happened to its connections."""

    def __init__(self, answer: Answer, schema: Any, greet: Callable[[Socket], Awaitable[None]] | None) -> None:
        self.answer, self.schema, self.greet = answer, schema, greet
        self.address = ""
        self.messages: list[list[dict[str, Any]]] = []
        """The messages of each connection."""
        self.ended = asyncio.Queue[int]()
        """The numbers of the connections that have ended."""
        self.routes: dict[str, Any] = {}
        """The replies of further HTTP routes."""
        self.refused_with = 0
        """The status with which a connection is refused."""

    async def play(self, request: web.Request) -> web.StreamResponse:
        if self.refused_with:
            return web.Response(status=self.refused_with)
        socket, messages = web.WebSocketResponse(), list[dict[str, Any]]()
        self.messages.append(messages)
        number = len(self.messages)
        await socket.prepare(request)
        try:
            if self.greet is not None:
                await self.greet(socket)
            async for message in socket:
                messages.append(json.loads(message.data))
                if messages[-1]["type"] == "close":
                    break
                await self.answer(socket, messages[-1])
            await socket.close()
        except ConnectionError:
            pass
        finally:
            self.ended.put_nowait(number)
        return socket

    async def other(self, request: web.Request) -> web.Response:
        found = self.schema if request.path == "/schema" else self.routes.get(request.path)
        return web.Response(status=404) if found is None else web.json_response(found)


@asynccontextmanager
async def stub(
    answer: Answer, schema: Any = STEP_SCHEMA, greet: Callable[[Socket], Awaitable[None]] | None = None
) -> AsyncIterator[Stub]:
    """Serve a stub on a free port."""
    server = Stub(answer, schema and {"action": schema}, greet)
    app = web.Application()
    app.router.add_get("/ws", server.play)
    app.router.add_route("*", "/{path:.*}", server.other)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.address = f"ws://127.0.0.1:{runner.addresses[0][1]}/ws"
        yield server
    finally:
        await runner.cleanup()


async def game(socket: Socket, message: dict[str, Any]) -> None:
    """Answer as a game: `move` is a reward, and `stop` ends the episode."""
    if message["type"] == "reset":
        await socket.send_str(observation({"board": message["data"]}))
    elif message["data"].get("move") == "stop":
        await socket.send_str(observation({"board": "end"}, done=True))
    elif message["data"].get("move") == "crash":
        await socket.send_str(error("EXECUTION_ERROR", "the dice fell off"))
    elif "move" in message["data"]:
        await socket.send_str(observation({"board": "on", "metadata": {}}, float(message["data"]["move"])))
    else:
        problems = [{"loc": ["move"], "msg": "Field required"}]
        await socket.send_str(error("VALIDATION_ERROR", "Invalid message", errors=problems))


async def tools(socket: Socket, message: dict[str, Any]) -> None:
    """Answer as an environment with MCP tools."""
    action = message["data"]
    if message["type"] == "reset":
        await socket.send_str(observation({"metadata": {}}))
    elif action["type"] == "list_tools":
        await socket.send_str(observation({"tools": TOOLS}))
    elif action["arguments"].get("a") == 0:
        await socket.send_str(observation({"result": None, "error": {"message": "a must not be 0"}}))
    elif action["arguments"].get("a") == 1:
        picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        await socket.send_str(observation({"result": {"content": [{"type": "text", "text": "one"}, picture]}}, 1.0))
    else:
        text = {"type": "text", "text": action["tool_name"]}
        await socket.send_str(observation({"result": {"content": [text], "is_error": False}}, 0.5))

"""A number game as an OpenEnv server in this process, for examples and checks without another program."""

from __future__ import annotations

import asyncio
import random

import orjson
from aiohttp import WSMsgType, web

HIGHEST = 20
SCHEMA = {
    "action": {
        "type": "object",
        "description": "One guess.",
        "properties": {"number": {"type": "integer", "description": f"A number from 1 to {HIGHEST}."}},
        "required": ["number"],
    }
}
NAME = "guess_the_number"
RULES = f"Guess a number from 1 to {HIGHEST}. After each guess, you hear whether the number is higher or lower."


def secret_of(seed: int) -> int:
    """Return the number to guess."""
    return random.Random(seed).randint(1, HIGHEST)


class Demo:
    """The server of the game. It starts on first use, on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._starting = asyncio.Lock()

    async def address(self) -> str:
        """Return the server's address."""
        async with self._starting:
            if self._runner is None:
                app = web.Application()
                app.router.add_get("/schema", _schema)
                app.router.add_get("/ws", _play)
                runner = web.AppRunner(app, shutdown_timeout=0.1)
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self._runner = runner
        host, port = self._runner.addresses[0][:2]
        return f"ws://{host}:{port}/ws"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


async def _schema(_: web.Request) -> web.Response:
    return web.json_response(SCHEMA)


async def _play(request: web.Request) -> web.WebSocketResponse:
    socket, secret = web.WebSocketResponse(), 0
    await socket.prepare(request)
    async for message in socket:
        asked = orjson.loads(message.data) if message.type is WSMsgType.TEXT else {}
        kind, data = asked.get("type"), asked.get("data", {})
        if kind == "close":
            break
        if kind == "reset":
            secret = secret_of(data.get("seed", 0))
            await _reply(socket, RULES, None)
        elif type(guess := data.get("number")) is int:
            hint = "right" if guess == secret else "higher" if guess < secret else "lower"
            await _reply(socket, hint, float(guess == secret))
        else:
            problem = {"code": "VALIDATION_ERROR", "message": "number: expected an integer"}
            await socket.send_json({"type": "error", "data": problem})
    await socket.close()
    return socket


async def _reply(socket: web.WebSocketResponse, text: str, reward: float | None) -> None:
    observation = {"observation": {"text": text}, "reward": reward, "done": bool(reward)}
    await socket.send_json({"type": "observation", "data": observation})

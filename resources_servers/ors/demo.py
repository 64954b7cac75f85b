"""A small ORS server of our own, so that the folder has tasks without any other program: find a hidden number."""

from __future__ import annotations

import json
import uuid
import zlib
from typing import Any

from aiohttp import web

HIGHEST, GUESSES = 100, 7
SPLITS, TASKS = ("train", "validation", "example"), 10**7
RULES = f"I have hidden a whole number from 1 to {HIGHEST}. Find it with your tool, in at most {GUESSES} guesses."
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOLS = {"tools": [{"name": "guess", "description": "Guess the number.", "input_schema": NUMBER}]}


def hidden(split: str, index: int) -> int:
    """Return the hidden number of a task."""
    return 1 + zlib.crc32(f"{split} {index}".encode()) % HIGHEST


class Demo:
    """The server of the number game. It serves this process on a free port from `start` to `stop`."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._games: dict[str, list[int]] = {}
        """The hidden number and the guesses of each session."""

    async def start(self) -> str:
        """Start to serve, and return the address."""
        app = web.Application()
        app.add_routes([web.route("*", "/{path:.*}", self._answer)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/number"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        sid, route = request.headers.get("X-Session-ID", ""), request.path.rpartition("/")[2]
        body: Any = await request.json() if request.body_exists else {}
        if route == "create_session":
            return _events(uuid.uuid4().hex, "")
        if route == "create":
            if body.get("split") not in SPLITS or not 0 <= body["index"] < TASKS:
                return web.json_response({"detail": "Invalid split or index"}, status=400)
            self._games[sid] = [hidden(body["split"], body["index"])]
        if route in ("delete", "delete_session"):
            self._games.pop(sid, None)
        elif route == "call":
            return _events("call", json.dumps(_played(self._games[sid], body)))
        replies = {
            "prompt": [{"type": "text", "text": RULES}],
            "tools": TOOLS,
            "task_tools": TOOLS,
            "splits": [{"name": each} for each in SPLITS],
            "num_tasks": {"num_tasks": TASKS},
        }
        return web.json_response(replies.get(route, {"sid": sid}))


def _played(game: list[int], body: Any) -> dict[str, Any]:
    given = body["input"].get("number")
    if body["name"] != "guess" or type(given) is not int:
        return {"ok": False, "error": "Call guess with a whole number."}
    game.append(given)
    is_right, is_over = given == game[0], len(game) > GUESSES
    text = "Right!" if is_right else f"The number is {'higher' if given < game[0] else 'lower'}."
    reward = float(is_right) if is_right or is_over else None
    blocks = [{"type": "text", "text": text}]
    return {"ok": True, "output": {"blocks": blocks, "reward": reward, "finished": is_right or is_over}}


def _events(task_id: str, result: str) -> web.Response:
    text = f"event: task_id\ndata: {task_id}\n\nevent: end\ndata: {result}\n\n"
    return web.Response(text=text, content_type="text/event-stream")

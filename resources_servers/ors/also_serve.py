"""Serve any resources server to clients of ORS and OpenReward: `also_serve: [ors]`."""

from __future__ import annotations

import asyncio
import hmac
import re
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym import RolloutError, SimpleResourcesServer, __version__
from nemo_gym.errors import SignatureError
from nemo_gym.jsonl import dump_json
from nemo_gym.servers.group_verification import is_for_groups
from nemo_gym.servers.resources import listed_tools
from nemo_gym.web.app import add_within_session
from resources_servers.ors.episodes import Episodes, Json, Refused

KEEP_ALIVE_S = 10.0
CHUNK = 4096
"""The characters per event. Clients limit the length of a line."""
MOST_TASKS = 100_000
"""The most tasks in one reply."""
TYPES = {"example": "validation", "benchmark": "test"}
"""The protocol's type of each split that has another name."""
OF_ENVIRONMENT = frozenset(
    f"/{each}"
    for each in (
        "tools", "task_tools", "prompt", "messages", "call", "score_group", "splits", "tasks", "num_tasks", "task",
        "task_range",
    )
)  # fmt: skip
ROLES = {"developer": "system"}
STATUS = {"task": 400, "session": 404, "turn": 409}
DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
STREAM = {"cache-control": "no-cache", "x-accel-buffering": "no"}
Sid = Annotated[str, Header(alias="X-Session-ID")]


class OfSplit(BaseModel):
    model_config = ConfigDict(extra="forbid")

    split: str


class OneTask(OfSplit):
    index: int


class TaskRange(OfSplit):
    start: int | None = None
    stop: int | None = None


class Create(BaseModel):
    """The task to begin. The secrets of a client are ignored: no environment of ours asks its client for any."""

    env_name: str | None = None
    task_spec: Json | None = None
    split: str | None = None
    index: int | None = None

    def task(self) -> Json:
        """Return the task's split and index. Raise `Refused` unless exactly one task is given."""
        by_index = {"split": self.split, "index": self.index}
        if (self.task_spec is None) == (self.split is None or self.index is None):
            raise Refused("give either task_spec, or split and index", "task")
        task = by_index if self.task_spec is None else self.task_spec
        if not isinstance(task.get("split"), str) or type(task.get("index")) is not int:
            raise Refused("a task_spec has a split and an index", "task")
        return {"split": task["split"], "index": task["index"]}


class Call(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    input: Json
    task_id: str | None = Field(default=None, max_length=64)


class Candidate(BaseModel):
    messages: list[Json]
    metadata: Json | None = None


class Group(BaseModel):
    candidates: list[Candidate] = Field(min_length=2)
    task_id: str | None = None


def add_task_routes(app: FastAPI, server: SimpleResourcesServer) -> Episodes:
    """Add the routes that list tasks, which ORS and OpenEnv share. A second call adds nothing."""
    episodes = Episodes.of(app, server)
    if not getattr(app.state, "lists_tasks", False):
        app.state.lists_tasks = True
        routes = TaskRoutes(episodes)
        app.add_exception_handler(Refused, _refused)
        with Added(app, server) as added:
            added.get("/list_environments", routes.list_environments)
            added.get("/{env}/splits", routes.splits)
            added.post("/{env}/tasks", routes.tasks)
            added.post("/{env}/num_tasks", routes.num_tasks)
            added.post("/{env}/task", routes.task)
            added.post("/{env}/task_range", routes.task_range)
    return episodes


class TaskRoutes:
    """The routes that list tasks. A task is its split and index, because a row contains the solution."""

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes

    async def list_environments(self) -> list[str]:
        return [self.episodes.name]

    async def splits(self, env: str) -> list[dict[str, str]]:
        self.episodes.check_name(env)
        found = await asyncio.to_thread(self.episodes.tasks.splits)
        return [{"name": each, "type": TYPES.get(each, each)} for each in found]

    async def tasks(self, env: str, asked: OfSplit) -> Json:
        return await self.task_range(env, TaskRange(split=asked.split))

    async def num_tasks(self, env: str, asked: OfSplit) -> dict[str, int]:
        self.episodes.check_name(env)
        return {"num_tasks": await asyncio.to_thread(self.episodes.tasks.size, asked.split)}

    async def task(self, env: str, asked: OneTask) -> Json:
        self.episodes.check_name(env)
        split, index = await asyncio.to_thread(self.episodes.tasks.place, asked.model_dump())
        return {"task": {"split": split, "index": index}, "env_name": self.episodes.name}

    async def task_range(self, env: str, asked: TaskRange) -> Json:
        size = (await self.num_tasks(env, OfSplit(split=asked.split)))["num_tasks"]
        places = range(size)[asked.start : asked.stop]
        if len(places) > MOST_TASKS:
            raise Refused(f"the range has {len(places)} tasks. Ask for at most {MOST_TASKS} (task_range)", "task")
        return {"tasks": [{"split": asked.split, "index": each} for each in places], "env_name": self.episodes.name}


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return JSONResponse({"detail": str(error)}, STATUS[error.code])


class Added:
    """The routes of a protocol. They come before the server's own, which may accept any path."""

    def __init__(self, app: FastAPI, server: SimpleResourcesServer) -> None:
        self._app = app
        own = {getattr(each, "path", "") for each in app.routes}
        self._taken = {*own, *(f"/{each.name}" for each in listed_tools(server))}
        self._name, self._before = server.config.name, len(app.router.routes)

    def __enter__(self) -> Added:
        return self

    def __exit__(self, *_: object) -> None:
        routes = self._app.router.routes
        new = routes[self._before :]
        del routes[self._before :]
        routes[:0] = new

    def get(self, path: str, endpoint: Any) -> None:
        self._add(path, endpoint, "GET")

    def post(self, path: str, endpoint: Any) -> None:
        self._add(path, endpoint, "POST")

    def _add(self, path: str, endpoint: Any, method: str) -> None:
        if path in self._taken:
            raise SignatureError(f"also_serve: {self._name} has a tool or a route {path} of its own. Rename it")
        self._app.add_api_route(path, endpoint, methods=[method], include_in_schema=False, response_model=None)


def add_to(app: FastAPI, server: SimpleResourcesServer) -> None:
    """Add the routes of ORS to a server's app."""
    served = OrsRoutes(app, server)
    with Added(app, server) as added:
        added.get("/version", served.version)
        added.post("/create_session", served.create_session)
        added.post("/create", served.create)
        added.post("/delete", served.delete)
        added.post("/delete_session", served.delete)
        added.post("/ping", served.ping)
        added.get("/{env}/tools", served.tools)
        added.get("/{env}/task_tools", served.task_tools)
        added.get("/{env}/prompt", served.prompt)
        added.get("/{env}/messages", served.messages)
        added.post("/{env}/call", served.call)
        added.post("/{env}/score_group", served.score_group)
    add_within_session(app, Middleware(_DefaultEnvironment, name=server.config.name))
    app.state.admits = partial(_admits, app, getattr(app.state, "admits", None))


class OrsRoutes:
    """The routes of ORS for one server. Its only environment has the server's name."""

    def __init__(self, app: FastAPI, server: SimpleResourcesServer) -> None:
        self.server = server
        self.episodes = add_task_routes(app, server)

    async def version(self) -> Json:
        return {"version": __version__, "build_sha": None}

    async def create_session(self) -> StreamingResponse:
        sid = await self.episodes.open()
        return _stream(_written([("task_id", sid), ("end", "")]))

    async def create(self, asked: Create, sid: Sid) -> Json:
        self.episodes.check_name(asked.env_name or self.episodes.name)
        task = asked.task()
        if (await self.episodes.ask(sid, "about", is_own=True))["has_begun"]:
            raise Refused("Session already exists", "task")
        await self.episodes.ask(sid, "begin", task, is_own=True)
        return {"sid": sid}

    async def delete(self, sid: Sid) -> Json:
        # A client deletes its session by two routes, and may have lost the reply to the first one.
        with suppress(Refused):
            await self.episodes.ask(sid, "close", is_own=True)
        return {"sid": sid}

    async def ping(self, sid: Sid) -> Json:
        await self.episodes.ask(sid, "about", is_own=True)
        return {"status": "ok"}

    async def tools(self, env: str) -> Json:
        self.episodes.check_name(env)
        return _tool_list(self.episodes.listed(), scores=is_for_groups(self.server))

    async def task_tools(self, env: str, sid: Sid) -> Json:
        return _tool_list((await self._begun(env, sid))["tools"], scores=is_for_groups(self.server))

    async def prompt(self, env: str, sid: Sid) -> list[Json]:
        """Return the prompt as blocks. Blocks have no role, so it is written before each message of a conversation."""
        shown = (await self._begun(env, sid))["prompt"]
        blocks = []
        for each in shown:
            if any(other.get("role") == "assistant" for other in shown):
                blocks.append({"type": "text", "text": f"{each.get('role', each.get('type'))}:"})
            blocks += _blocks(each.get("content"))
        return blocks

    async def messages(self, env: str, sid: Sid) -> list[Json]:
        shown = [each for each in (await self._begun(env, sid))["prompt"] if each.get("role")]
        return [{"role": ROLES.get(each["role"], each["role"]), "blocks": _blocks(each["content"])} for each in shown]

    async def call(self, env: str, asked: Call, sid: Sid) -> StreamingResponse:
        await self._begun(env, sid)
        job = asked.task_id or uuid.uuid4().hex
        body = {"name": asked.name, "arguments": asked.input, "job": job, "is_again": asked.task_id is not None}
        return _stream(_events(job, self.episodes.ask(sid, "call", body, is_own=True), _output))

    async def score_group(self, env: str, asked: Group, sid: Sid) -> StreamingResponse:
        await self._begun(env, sid)
        if not is_for_groups(self.server):
            raise HTTPException(404, f"Environment {env!r:.80} does not implement score_group")
        body = {"candidates": [_items(each.messages) for each in asked.candidates]}
        return _stream(_events(uuid.uuid4().hex, self.episodes.ask(sid, "score", body, is_own=True), _scores))

    async def _begun(self, env: str, sid: str) -> Json:
        self.episodes.check_name(env)
        about = await self.episodes.ask(sid, "about", is_own=True)
        if not about["has_begun"]:
            raise Refused("Active environment not found", "session")
        return about


class _DefaultEnvironment:
    """Middleware for clients that do not name the environment in the path, as those of OpenReward may do.

    Only their calls have a session id in a header, so the server's own routes, such as `/tools`, remain.
    """

    def __init__(self, app: ASGIApp, *, name: str) -> None:
        self.app, self.name = app, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_short = scope["type"] == "http" and scope["path"] in OF_ENVIRONMENT
        if is_short and any(name == b"x-session-id" for name, _ in scope["headers"]):
            path = f"/{self.name}{scope['path']}"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)


def _admits(app: FastAPI, others: Callable[[Scope], bool] | None, scope: Scope) -> bool:
    """Accept the run's token as `X-API-Key`, the only header that clients of ORS can set."""
    parts = getattr(app, "parts", {})
    expected = (parts["admission"].run_token or "").encode() if "admission" in parts else b""
    given = next((value for name, value in scope["headers"] if name == b"x-api-key"), b"")
    return (expected != b"" and hmac.compare_digest(given, expected)) or (others is not None and others(scope))


def _tool_list(definitions: list[Json], *, scores: bool) -> Json:
    specs = [
        {"name": each["name"], "description": each.get("description") or "", "input_schema": each.get("parameters")}
        for each in definitions
    ]
    # The last tool submits the answer. Clients that know terminal tools call it with the model's last message.
    terminal = {"name": specs[-1]["name"], "arg": "answer", "description": specs[-1]["description"]}
    kinds = ["text", "image", "tool_call", "tool_result"]
    return {"tools": specs, "terminal_tool": terminal, "supports_score_group": scores, "message_block_types": kinds}


def _blocks(content: Any) -> list[Json]:
    """Return the content of an input item, or a tool's output, as blocks. Other parts than images are texts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_block(each) for each in content or ()]


def _block(part: Any) -> Json:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)} if image := DATA_URL.fullmatch(url):
            return {"type": "image", "data": image[2], "mimeType": image[1]}
    return {"type": "text", "text": dump_json(part).decode()}


def _items(messages: list[Json]) -> list[Json]:
    """Return a candidate's messages as output items: its calls, their results, and its texts as messages."""
    items: list[Json] = []
    for message in messages:
        for block in message.get("blocks") or ():
            if block.get("type") == "tool_call":
                arguments = dump_json(block.get("input") or {}).decode()
                items.append({"type": "function_call", "call_id": block["id"], "name": block["name"]})
                items[-1]["arguments"] = arguments
            elif block.get("type") == "tool_result":
                text = "\n".join(each.get("text", "") for each in block.get("blocks") or ())
                items.append({"type": "function_call_output", "call_id": block["tool_call_id"], "output": text})
            elif message.get("role") == "assistant" and block.get("type") == "text":
                content = [{"type": "output_text", "text": block["text"], "annotations": []}]
                items.append({"type": "message", "id": f"msg_{len(items)}", "role": "assistant", "content": content})
    return items


def _output(result: Json) -> Json:
    if result["is_unknown"]:
        return {"ok": False, "error": result["output"], "reason": "not_found"}
    # A tool's own error is a result, too: the model sees its text.
    output = {"blocks": _blocks(result["output"]), "metadata": None, "reward": result["reward"]}
    return {"ok": True, "output": {**output, "finished": result["done"]}}


def _scores(result: Json) -> Json:
    return {"scores": [{"reward": each, "metadata": None} for each in result["rewards"]]}


async def _events(job: str, asking: Coroutine[Any, Any, Json], shown: Any) -> AsyncIterator[bytes]:
    """Yield the events of a call: its id at once, comments while it runs, and its result or its error."""
    yield _event("task_id", job)
    task = asyncio.create_task(asking)
    try:
        while not (await asyncio.wait({task}, timeout=KEEP_ALIVE_S))[0]:
            yield b": ping\n\n"
        try:
            text = dump_json(shown(task.result())).decode()
        except Refused as error:
            if error.code == "session":
                yield _event("error", str(error))
                return
            text = dump_json({"ok": False, "error": str(error), "reason": "episode_finished"}).decode()
        except RolloutError as error:
            # A result with `ok: false` would be the model's fault, and the rollout would be graded.
            yield _event("error", " ".join(str(error).split()))
            return
        start = 0
        while start < len(text):
            stop = start + CHUNK
            # Begin no event with a space, because clients remove it.
            while text[stop : stop + 1].isspace():
                stop += 1
            yield _event("chunk" if stop < len(text) else "end", text[start:stop])
            start = stop
    finally:
        task.cancel()


def _stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, 200, STREAM, "text/event-stream")


async def _written(events: list[tuple[str, str]]) -> AsyncIterator[bytes]:
    for name, data in events:
        yield _event(name, data)


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode("utf-8", "replace")

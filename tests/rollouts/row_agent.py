"""An agent server that follows each row's `act`, and that also serves the configuration like a head server.

`python tests/rollouts/row_agent.py` listens on a free loopback port, prints the port and runs until its standard
input is closed. `sound`, `mute` and `sick` are names of the same agent. `mute` has no metrics endpoint, and `sick`
fails to compute metrics. `team` is the same agent with a resources server that grades the repeats of a task together.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

AGENTS = ("sound", "mute", "sick")
Row = dict[str, Any]
Act = Callable[[Row], Awaitable[Response]]
ACTS: dict[str, Act] = {}


class Book:
    """A record of the requests since the last reset."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ids: list[str | None] = []
        self.now = 0
        self.most_at_once = 0
        self.bodies_of_metrics: list[Any] = []
        self.release = asyncio.Event()


book = Book()


def act(answer: Act) -> Act:
    ACTS[answer.__name__] = answer
    return answer


def graded(row: Row, **fields: Any) -> Response:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    response = {"output": [], "model": "small-2026-01", "usage": row.get("usage", usage)}
    return json_of({**row, "response": response, "reward": row.get("earns", 1.0), **fields})


def json_of(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


@act
async def ok(row: Row) -> Response:
    return graded(row)


@act
async def slow(row: Row) -> Response:
    await asyncio.sleep(row["lasts_s"])
    return graded(row)


@act
async def held(row: Row) -> Response:
    await book.release.wait()
    return graded(row)


@act
async def model_failed(row: Row) -> Response:
    problem = {
        "type": "about:blank", "title": "model failed", "status": 502, "detail": "the endpoint is out of memory",
        "failure_class": "model_failed", "server": "policy_model",
    }  # fmt: skip
    return Response(orjson.dumps(problem), 502, media_type="application/problem+json")


@act
async def crash(row: Row) -> Response:
    return PlainTextResponse("no such luck", 500)


@act
async def answer(row: Row) -> Response:
    """Reply with exactly the row's `bytes`."""
    return Response(row["bytes"].encode(), 200, media_type="application/json")


@act
async def deny_its_key(row: Row) -> Response:
    return graded(row, _ng_task_index=99, _ng_rollout_index=99, agent_ref={"name": "other"}, skills_ref=None)


@act
async def cut(row: Row) -> Response:
    async def half() -> AsyncIterator[bytes]:
        yield b'{"reward": '
        raise ConnectionAbortedError

    return StreamingResponse(half(), headers={"content-length": "1000"})


@act
async def die(row: Row) -> Response:
    """Kill this process while another request is in progress."""
    while book.now < 2:  # noqa: ASYNC110 - requests send no signal
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
    return PlainTextResponse("unreachable")


@act
async def fail_until(row: Row) -> Response:
    """Fail with the row's `failure_class` or `status` before attempt number `until`."""
    if row.get("_ng_attempt_index", 0) >= row["until"]:
        return graded(row)
    if "failure_class" not in row:
        return PlainTextResponse("no room", row["status"], headers=row.get("headers"))
    problem = {"title": "no", "status": 503, "detail": "not now", "server": "games", "tier": "environment"}
    return Response(orjson.dumps({**problem, "failure_class": row["failure_class"]}), 503)


@act
async def discard_second(row: Row) -> Response:
    """Reject the first attempt because of overload, and ask not to save the result of the second."""
    attempt = row.get("_ng_attempt_index", 0)
    if attempt == 0:
        return PlainTextResponse("no room", 503)
    return graded(row, _ng_no_persist=attempt == 1)


@act
async def ungraded(row: Row) -> Response:
    """Leave the reward to `verify_group`."""
    return graded(row, reward=0.0, _ng_failure_class="ungraded")


@act
async def fail_twice(row: Row) -> Response:
    return graded(row) if row.get("_ng_attempt_index", 0) >= 2 else PlainTextResponse("not yet", 500)


async def run(request: Request) -> Response:
    row = orjson.loads(await request.body())
    # Requests left by an earlier test are still counted in that test's book.
    opened = book
    opened.begun.append(f"{row.get('_ng_task_index')}-{row.get('_ng_rollout_index')}")
    opened.ids.append(request.headers.get("x-nemo-gym-rollout"))
    opened.now += 1
    opened.most_at_once = max(opened.most_at_once, opened.now)
    try:
        return await ACTS[row.get("act", "ok")](row)
    finally:
        opened.now -= 1


async def aggregate_metrics(request: Request) -> Response:
    rows = orjson.loads(await request.body())["verify_responses"]
    agent = rows[0]["agent_ref"]["name"]
    if agent == "mute":
        return JSONResponse({"detail": "Not Found"}, 404)
    if agent == "sick":
        return PlainTextResponse("division by zero", 500)
    book.bodies_of_metrics.append(rows)
    mean = sum(row["reward"] for row in rows) / len(rows)
    groups = [group for row in rows for group in row.get("groups", [])]
    metrics = {"mean/reward": mean}
    own = {name: value for row in rows for name, value in row.get("agent_metrics", {}).items()}
    return json_of({"agent_metrics": {**metrics, **own}, "key_metrics": metrics, "group_level_metrics": groups})


async def verify_group(request: Request) -> Response:
    bodies = orjson.loads(await request.body())["bodies"]
    return json_of({"results": [{**body, "reward": 1 / len(bodies)} for body in bodies]})


async def state(request: Request) -> Response:
    return JSONResponse(
        {
            "begun": book.begun,
            "ids": book.ids,
            "now": book.now,
            "most_at_once": book.most_at_once,
            "bodies_of_metrics": book.bodies_of_metrics,
        }
    )


async def begin_again(request: Request) -> Response:
    global book  # noqa: PLW0603 - the current book
    book.release.set()
    book = Book()
    return JSONResponse({})


async def release(request: Request) -> Response:
    book.release.set()
    return JSONResponse({})


async def shared_run(request: Request) -> Response:
    """Describe the run of this agent, as a head server does."""
    graders = {"resources_server": {"type": "resources_servers", "name": "graders"}}
    servers = {
        name: {
            "name": name,
            "type": tier,
            "implementation": "row_agent",
            "entrypoint": "app.py",
            "folder": ".",
            "host": "127.0.0.1",
            "port": request.url.port,
            "settings": settings,
        }
        for name, tier, settings in (
            *((name, "responses_api_agents", {}) for name in AGENTS),
            ("team", "responses_api_agents", graders),
            ("graders", "resources_servers", {"group_verification": {}}),
        )
    }
    return JSONResponse({"run": {"servers": servers}, "config_yaml": "retry_pause_s: 0.01\n"})


async def end_with_input() -> None:
    """Exit when the parent process closes the pipe, even if it crashed."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    os._exit(0)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    ending = asyncio.create_task(end_with_input())
    yield
    ending.cancel()


ROUTES = [
    Route("/run", run, methods=["POST"]),
    Route("/aggregate_metrics", aggregate_metrics, methods=["POST"]),
    Route("/groups/verify", verify_group, methods=["POST"]),
    Route("/run", shared_run),
    Route("/state", state),
    Route("/begin_again", begin_again, methods=["POST"]),
    Route("/release", release, methods=["POST"]),
]

if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listener.getsockname()[1], flush=True)  # noqa: T201
    config = uvicorn.Config(
        Starlette(routes=ROUTES, lifespan=lifespan), access_log=False, log_level="critical", timeout_keep_alive=75
    )
    uvicorn.Server(config).run(sockets=[listener])

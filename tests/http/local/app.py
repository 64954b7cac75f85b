"""An app whose routes answer in many ways, or not at all."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from nemo_gym.http.correlation import current_rollout_id, note_failure
from nemo_gym.http.deadline import time_left_s
from nemo_gym.servers.front import Front
from nemo_gym.servers.session_cookies import Sessions

LARGE = 3_000_000
WORD: ContextVar[str] = ContextVar("word", default="unset")
noted: list[str] = []
"""What handlers saw; every test begins with none of it."""


async def tell(request: Request) -> dict[str, Any]:
    body = await request.body()
    return {
        "method": request.method, "path": request.url.path, "url": str(request.url),
        "root": request.scope["root_path"],
        "raw_path": request.scope["raw_path"].decode(), "query": request.url.query, "params": request.path_params,
        "headers": [(name.decode(), value.decode("latin-1")) for name, value in request.scope["headers"]],
        "body": body.decode("latin-1"), "state": request.state.kept, "version": request.scope["http_version"],
    }  # fmt: skip


async def status(request: Request) -> Response:
    return Response(b"told", int(request.path_params["code"]), {"x-mine": "Yes"})


async def without_body(request: Request) -> Response:
    return Response(status_code=204)


async def repeated(request: Request) -> Response:
    answer = PlainTextResponse("twice")
    answer.set_cookie("a", "1")
    answer.set_cookie("b", "2; 3")
    answer.raw_headers.append((b"X-Same", b"one"))
    answer.raw_headers.append((b"x-same", b"two"))
    return answer


async def chunked(request: Request) -> Response:
    async def parts():
        for part in (b"one", b"", b"two", b"x" * 100_000):
            yield part
            await asyncio.sleep(0)

    return StreamingResponse(parts())


async def large(request: Request) -> Response:
    return Response(await request.body() * 2)


async def with_head(request: Request) -> Response:
    return PlainTextResponse("a body of twenty-six signs!!")


async def break_before(request: Request) -> Response:
    raise ZeroDivisionError("before")


async def break_with_timeout(request: Request) -> Response:
    raise TimeoutError("its own")


async def break_with_cancelled(request: Request) -> Response:
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    await waited_for
    raise AssertionError("never here")


async def break_after(request: Request) -> Response:
    async def parts():
        yield b"one"
        await asyncio.sleep(0.01)
        raise ZeroDivisionError("after")

    return StreamingResponse(parts())


async def no_answer(scope: Any, receive: Any, send: Any) -> None:
    return None


async def half_an_answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def never(request: Request) -> Response:
    try:
        noted.append("asked")
        await asyncio.sleep(60)
    finally:
        noted.append("ended")
    return Response()


async def listens(scope: Any, receive: Any, send: Any) -> None:
    """Waits for the caller's leaving from the beginning, answers, and ends when it has heard of it."""
    await receive()
    leaving = asyncio.ensure_future(receive())
    await asyncio.sleep(0.01)
    noted.append("too early" if leaving.done() else "still there")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answered"})
    noted.append((await leaving)["type"])
    noted.append((await receive())["type"])


async def swallows(request: Request) -> Response:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        noted.append("swallowed")
    return PlainTextResponse("all the same")


async def sees(request: Request) -> list[Any]:
    seen = [WORD.get(), current_rollout_id(), time_left_s()]
    WORD.set("set by the handler")
    note_failure({"noted": "by the handler"})
    await asyncio.sleep(0)
    return [*seen, WORD.get()]


async def session(request: Request) -> Any:
    request.session["times"] = request.session.get("times", 0) + 1
    return request.session["times"]


class Raw:
    """Puts plain ASGI functions before an app."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        by_path = {"/no-answer": no_answer, "/half": half_an_answer, "/listens": listens}
        await by_path.get(scope.get("path", ""), self.app)(scope, receive, send)


def new_app() -> FastAPI:
    async def keep(app: FastAPI):
        yield {"kept": "by the lifespan"}

    app = FastAPI(lifespan=asynccontextmanager(keep))
    app.api_route("/tell/{rest:path}", methods=["GET", "POST", "PUT", "DELETE"], response_model=None)(tell)
    for function in (
        repeated, chunked, large, break_before, break_with_timeout, break_with_cancelled, break_after, never,
        swallows, sees, session,
    ):  # fmt: skip
        path = "/" + function.__name__.replace("_", "-")
        app.api_route(path, methods=["GET", "POST"], response_model=None)(function)
    app.get("/status/{code}", response_model=None)(status)
    app.get("/without-body", response_model=None)(without_body)
    app.router.routes.append(Route("/with-head", with_head, methods=["GET", "HEAD"]))
    app.add_middleware(Front, sessions=Sessions(cookie="mine", secret="s" * 32))
    app.add_middleware(Raw)
    return app

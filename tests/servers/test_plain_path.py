"""The short way of plain routes: each answers as it does with FastAPI alone, and the author's code always runs."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import orjson
import pytest
from fastapi import APIRouter, BackgroundTasks, Body, Cookie, Depends, FastAPI, Form, Header, HTTPException, Query
from fastapi import Response as FastAPIResponse
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, field_validator
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import BaseRoute, Host, Match, Route

from nemo_gym import BaseVerifyRequest, SessionState, SimpleResourcesServer, tool
from nemo_gym.servers.base import standing_of
from nemo_gym.servers.faults import Faults
from nemo_gym.servers.front import Front
from nemo_gym.servers.plain_path import ServerApp
from nemo_gym.servers.session_cookies import Sessions
from nemo_gym.servers.telemetry import METRICS_PATH
from nemo_gym.testing import make_server, reply

JSON = (b"content-type", b"application/json")


class Told(NamedTuple):
    """What became of one request."""

    status: int | None
    headers: list[tuple[bytes, bytes]]
    body: bytes
    raised: str


@dataclass(frozen=True)
class Ask:
    """A request; `chunks` come in place of the body, and then the caller leaves."""

    path: str = "/add"
    body: bytes = b'{"x": 2}'
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
    method: str = "POST"
    query: str = ""
    root_path: str = ""
    chunks: tuple[bytes, ...] = ()
    is_complete: bool = True

    async def of(self, app: FastAPI) -> tuple[Told, bool]:
        """The answer, and whether it came in the short way: FastAPI's own leaves its mark in the scope."""
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": self.method, "scheme": "http", "path": self.root_path + self.path, "root_path": self.root_path,
            "raw_path": self.path.encode(), "query_string": self.query.encode(), "client": ("127.0.0.1", 9),
            "headers": [*self.headers, (b"host", b"test")], "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        chunks = self.chunks or (self.body,)
        messages = [{"type": "http.request", "body": each, "more_body": True} for each in chunks]
        messages[-1]["more_body"] = not self.is_complete
        sent: list[Any] = []
        is_answered = asyncio.Event()

        async def receive() -> Any:
            if messages:
                return messages.pop(0)
            if self.is_complete:
                await is_answered.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                is_answered.set()

        raised = ""
        try:
            await asyncio.wait_for(app(scope, receive, send), 5)
        except Exception as error:  # noqa: BLE001 - it is told
            raised = f"{type(error).__name__}: {error}"
        start = next((each for each in sent if each["type"] == "http.response.start"), None)
        body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
        told = Told(start and start["status"], list(start["headers"]) if start else [], body, raised)
        return told, "fastapi_middleware_astack" not in scope


ADD = Ask()
Setup = Callable[[FastAPI, list[Any]], None]


@dataclass(frozen=True)
class Case:
    """What an author does to an app, what is asked of it then, and which of that has the short way."""

    setup: Setup
    asks: tuple[Ask, ...]
    short: tuple[bool, ...]


CASES: dict[str, Case] = {}


def short(*asks: Ask) -> Callable[[Setup], Setup]:
    """A case of which every request has the short way."""
    return _case(*((ask, True) for ask in asks or (ADD,)))


def long(*asks: Ask) -> Callable[[Setup], Setup]:
    """A case of which none has."""
    return _case(*((ask, False) for ask in asks or (ADD,)))


def _case(*asks: tuple[Ask, bool]) -> Callable[[Setup], Setup]:
    def note(setup: Setup) -> Setup:
        CASES[setup.__name__] = Case(setup, tuple(ask for ask, _ in asks), tuple(is_short for _, is_short in asks))
        return setup

    return note


async def told_by(app: FastAPI, case: Case) -> tuple[list[Told], list[bool], list[Any]]:
    """The answers, which of them came in the short way, and what the author's code noted while it ran."""
    ran: list[Any] = []
    case.setup(app, ran)
    told = [await ask.of(app) for ask in case.asks]
    return [each for each, _ in told], [is_short for _, is_short in told], ran


class Number(BaseModel):
    x: int


class Sum(BaseModel):
    total: int = Field(serialization_alias="theTotal")
    spare: str | None = None


def add_route(app: FastAPI, ran: list[Any], **settings: Any) -> None:
    """The plain route that most cases have."""

    @app.post("/add", **settings)
    async def add(body: Number) -> dict[str, int]:
        ran.append("add")
        return {"total": body.x + 1}


# Plain routes


@short(ADD, Ask(body=b'{"x": 2, "more": [1, 2]}'), Ask(headers=((b"content-type", b"application/json; a=b"),)))
def a_body(app, ran):
    add_route(app, ran)


@short(Ask(query="x=1&y=2", headers=(JSON, (b"x-mine", b"yes"), (b"cookie", b"a=b"))))
def the_request_and_a_body(app, ran):
    @app.post("/add")
    async def add(request: Request, body: Number):
        ran.append(type(body))
        return {
            "x": body.x, "json": await request.json(), "body": (await request.body()).decode(),
            "mine": request.headers["x-mine"], "cookies": request.cookies, "query": dict(request.query_params),
            "path": request.url.path, "params": request.path_params, "url": str(request.url_for("add")),
            "route": request.scope["route"].path, "endpoint": request.scope["endpoint"].__name__,
        }  # fmt: skip


@short(ADD, Ask(body=b""), Ask(body=b"not JSON", headers=()), Ask(chunks=(b"a" * 9, b"", b"b")))
def the_request_alone(app, ran):
    @app.post("/add")
    async def add(request: Request):
        chunks = [chunk async for chunk in request.stream()]
        return {"body": b"".join(chunks).decode(), "again": await request.is_disconnected()}


@short(ADD, Ask(body=b""))
def nothing_at_all(app, ran):
    @app.post("/add")
    async def add() -> str:
        return "asked"


@short(Ask(chunks=(b'{"x"', b"", b": 4", b"1}")))
def a_body_in_several_chunks(app, ran):
    add_route(app, ran)


@short()
def the_state_of_the_app_and_of_the_lifespan(app, ran):
    app.state.word = "kept"

    @app.post("/add")
    async def add(request: Request, body: Number):
        request.state.own = 1
        return [request.app.state.word, request.app is app, request.state.own]


@short()
def a_response_model_with_aliases(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Sum:
        return Sum(total=body.x)


@short()
def a_response_model_by_name(app, ran):
    @app.post("/add", response_model=Sum, response_model_by_alias=False, response_model_exclude_none=True)
    async def add(body: Number):
        return {"total": body.x, "left": "out"}


@short()
def a_response_model_without_what_is_unset(app, ran):
    @app.post("/add", response_model_exclude_unset=True)
    async def add(body: Number) -> Sum:
        return Sum(total=body.x)


@short()
def a_response_model_without_its_defaults(app, ran):
    @app.post("/add", response_model_exclude_defaults=True)
    async def add(body: Number) -> Sum:
        return Sum(total=body.x, spare=None)


@short()
def some_fields_of_a_response_model(app, ran):
    @app.post("/add", response_model_include={"total"})
    async def add(body: Number) -> Sum:
        return Sum(total=body.x, spare="not told")


@short()
def all_but_some_fields_of_a_response_model(app, ran):
    @app.post("/add", response_model_exclude={"total"})
    async def add(body: Number) -> Sum:
        return Sum(total=body.x, spare="told")


@short()
def no_response_model(app, ran):
    @app.post("/add", response_model=None)
    async def add(body: Number) -> Sum:
        return Sum(total=body.x)


@short()
def an_answer_that_is_a_response(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        answer = JSONResponse({"x": body.x}, 202, headers={"x-mine": "yes"})
        answer.set_cookie("a", "1")
        answer.set_cookie("b", "2")
        return answer


@short()
def an_answer_with_work_behind_it(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        tasks = BackgroundTasks()
        tasks.add_task(ran.append, "afterwards")
        return PlainTextResponse("soon", background=tasks)


@short()
def an_answer_that_streams(app, ran):
    async def parts():
        for number in range(3):
            ran.append(number)
            yield f"data: {number}\n\n"

    @app.post("/add")
    async def add(body: Number) -> Any:
        return StreamingResponse(parts(), media_type="text/event-stream")


@short()
def a_stream_that_breaks(app, ran):
    async def parts():
        yield "one"
        raise ValueError("no more")

    @app.post("/add")
    async def add(body: Number) -> Any:
        return StreamingResponse(parts())


@pytest.mark.parametrize("kind", [HTTPException, KeyError])
async def test_a_stream_that_breaks_with_a_failure_that_has_a_handler_is_broken_all_the_same(kind):
    async def parts():
        yield "one"
        raise kind(418)

    def setup(app, ran):
        app.exception_handler(KeyError)(lambda request, error: JSONResponse({"never": "told"}))

        @app.post("/add")
        async def add(body: Number) -> Any:
            return StreamingResponse(parts())

    (alone,), _, _ = await told_by(FastAPI(), case := Case(setup, (ADD,), (True,)))
    (ours,), _, _ = await told_by(ServerApp(), case)
    assert (ours.status, ours.body) == (alone.status, alone.body) == (200, b"one")
    # What is raised is for the log; that something is ends the connection.
    assert alone.raised
    assert ours.raised


@short()
def an_answer_that_is_not_what_was_promised(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Sum:
        return {"total": "many"}  # type: ignore[return-value]


@short()
def an_answer_that_no_json_can_hold(app, ran):
    @app.post("/add")
    async def add(body: Number):
        return {"x": float("nan")}


@short(Ask(body=b'{"x": 1}'), Ask(body=b'{"x": "1"}'))
def a_default_in_place_of_a_body(app, ran):
    @app.post("/add")
    async def add(body: Number = Number(x=7)):  # noqa: B008
        return body.x


@short(ADD, Ask(path="/sub"))
def several_routes(app, ran):
    add_route(app, ran)

    @app.post("/sub")
    async def sub(body: Number) -> int:
        return -body.x


@short()
def the_names_of_fields_by_alias(app, ran):
    class Aliased(BaseModel):
        value: int = Field(alias="x")

    async def add(body: Any) -> Any:
        return {"value": body.value, "all": body}

    add.__annotations__ = {"body": Aliased}
    app.post("/add")(add)


# Middlewares


class Pure:
    """A middleware of the plain kind."""

    def __init__(self, app, ran, name):
        self.app, self.ran, self.name = app, ran, name

    async def __call__(self, scope, receive, send):
        self.ran.append(self.name)

        async def marked(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-by", self.name.encode())]
            await send(message)

        await self.app(scope, receive, marked)


@short()
def a_pure_middleware_before_the_route(app, ran):
    app.add_middleware(Pure, ran=ran, name="first")
    add_route(app, ran)


@short()
def two_middlewares_after_the_route(app, ran):
    add_route(app, ran)
    app.add_middleware(Pure, ran=ran, name="inner")
    app.add_middleware(Pure, ran=ran, name="outer")


@short()
def a_middleware_with_a_class_for_requests(app, ran):
    class Counting(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            ran.append(await request.json())
            answer = await call_next(request)
            answer.headers["x-counted"] = "1"
            return answer

    add_route(app, ran)
    app.add_middleware(Counting)


@short()
def a_middleware_that_is_a_function(app, ran):
    add_route(app, ran)

    @app.middleware("http")
    async def noting(request, call_next):
        ran.append(request.url.path)
        try:
            return await call_next(request)
        finally:
            ran.append("done")


@short()
def a_middleware_that_answers_itself(app, ran):
    add_route(app, ran)

    @app.middleware("http")
    async def refusing(request, call_next):
        return PlainTextResponse("not today", 403)


@short()
def a_middleware_that_replaces_the_body(app, ran):
    class Replacing:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            async def other():
                await receive()
                return {"type": "http.request", "body": b'{"x": 40}', "more_body": False}

            await self.app(scope, other, send)

    add_route(app, ran)
    app.add_middleware(Replacing)


@short(ADD, Ask("/elsewhere"))
def a_middleware_that_changes_the_path(app, ran):
    class Leading:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            scope["path"] = "/add"
            await self.app(scope, receive, send)

    add_route(app, ran)
    app.add_middleware(Leading)


@short()
def a_middleware_that_catches_what_a_handler_raises(app, ran):
    class Catching:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            try:
                await self.app(scope, receive, send)
            except ValueError as error:
                ran.append(str(error))
                await PlainTextResponse("caught", 501)(scope, receive, send)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise ValueError("no")

    app.add_middleware(Catching)


# Failures


@short()
def an_http_exception(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(409, {"why": "because"}, headers={"x-why": "because"})


@short()
def an_exception_that_nobody_expects(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        raise ZeroDivisionError("of course")


class Special(KeyError):
    pass


@short()
def an_exception_with_a_handler_for_its_base(app, ran):
    @app.exception_handler(LookupError)
    async def tell(request, error):
        ran.append((type(error), request.url.path, await request.body()))
        return JSONResponse({"error": "special"}, 422, headers={"x-by": "handler"})

    @app.post("/add")
    async def add(request: Request, body: Number) -> Any:
        raise Special


@short()
def an_exception_with_a_plain_function_for_a_handler(app, ran):
    app.add_exception_handler(Special, lambda request, error: PlainTextResponse(f"{request.method}", 499))

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise Special


@short()
def an_http_exception_whose_handler_was_replaced(app, ran):
    @app.exception_handler(HTTPException)
    async def tell(request, error):
        return PlainTextResponse(str(error.detail), error.status_code + 1)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(418, "tea")


@short()
def a_status_with_a_handler(app, ran):
    @app.exception_handler(418)
    async def tell(request, error):
        return PlainTextResponse("tea again", 200)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(418, "tea")


@short(ADD, Ask(body=b'{"x": 500}'))
def a_handler_for_every_exception(app, ran):
    @app.exception_handler(Exception)
    async def tell(request, error):
        return PlainTextResponse(f"all: {error}", 500)

    @app.middleware("http")
    async def noting(request, call_next):
        try:
            return await call_next(request)
        except Exception as error:
            ran.append(f"passed {error}")
            raise

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(500, "five hundred") if body.x == 500 else ValueError("no")


@short(ADD)
def a_handler_for_status_500(app, ran):
    @app.exception_handler(500)
    async def tell(request, error):
        return PlainTextResponse(f"all: {error}", 500)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(500, "five hundred")


@short()
def a_handler_that_fails_itself(app, ran):
    @app.exception_handler(Special)
    async def tell(request, error):
        raise RuntimeError("neither")

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise Special


@long(Ask(body=b'{"x": "many"}'))
def a_handler_for_bodies_that_are_refused(app, ran):
    @app.exception_handler(RequestValidationError)
    async def tell(request, error):
        ran.append(error.body)
        return JSONResponse({"problems": len(error.errors())}, 400)

    add_route(app, ran)


@short()
def a_validator_that_raises_what_is_no_problem_of_the_body(app, ran):
    class Odd(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def fails(cls, value):
            raise KeyError("broken validator")

    async def add(body: Any) -> Any:
        return body

    add.__annotations__ = {"body": Odd}
    app.post("/add")(add)


# Routes


@long()
def a_dependency_of_the_route(app, ran):
    add_route(app, ran, dependencies=[Depends(lambda: ran.append("asked"))])


@long()
def a_dependency_of_the_endpoint(app, ran):
    def session():
        ran.append("opened")
        yield 5
        ran.append("closed")

    @app.post("/add")
    async def add(body: Number, opened: int = Depends(session)) -> int:
        return body.x + opened


@long()
def a_dependency_of_the_whole_router(app, ran):
    app.router.dependencies.append(Depends(lambda: ran.append("asked")))
    add_route(app, ran)


@long()
def a_dependency_that_refuses(app, ran):
    def refuse():
        raise HTTPException(401)

    add_route(app, ran, dependencies=[Depends(refuse)])


@long()
def an_endpoint_that_is_replaced_by_one_in_front(app, ran):
    add_route(app, ran)

    async def mine(request: Request) -> FastAPIResponse:
        ran.append("mine")
        return PlainTextResponse("mine")

    app.router.routes.insert(0, Route("/add", mine, methods=["POST"]))


@short()
def an_endpoint_that_is_replaced_by_a_plain_one(app, ran):
    add_route(app, ran)
    app.router.routes[:] = [each for each in app.router.routes if getattr(each, "path", "") != "/add"]

    @app.post("/add")
    async def mine(body: Number) -> str:
        return "mine"


@_case((ADD, False), (Ask("/other"), False))
def a_route_for_any_path_in_front(app, ran):
    @app.post("/{tool_name}")
    async def any_tool(tool_name: str, request: Request):
        return {tool_name: await request.json()}

    add_route(app, ran)


@_case((ADD, True), (Ask("/other"), False), (Ask("/{tool_name}"), False))
def a_route_for_any_path_behind(app, ran):
    add_route(app, ran)

    @app.post("/{tool_name}")
    async def any_tool(request: Request):
        return {request.path_params["tool_name"]: await request.json()}


@long(ADD, Ask(method="GET", body=b""))
def a_route_of_another_method_in_front(app, ran):
    @app.put("/add")
    async def put() -> str:
        return "put"

    @app.api_route("/add", methods=["GET", "POST"], dependencies=[Depends(lambda: ran.append("both"))])
    async def both() -> str:
        return "both"

    add_route(app, ran)


@_case((ADD, True), (Ask(method="GET"), False), (Ask(method="HEAD"), False), (Ask("/add/"), False))
def a_method_or_a_path_that_is_not_there(app, ran):
    add_route(app, ran)


@long()
def a_router_that_is_included(app, ran):
    router = APIRouter(dependencies=[Depends(lambda: ran.append("asked"))])

    @router.post("/add")
    async def add(body: Number) -> int:
        return body.x

    app.include_router(router)
    add_route(app, ran)


@_case((ADD, False), (Ask("/more/sub"), False))
def a_router_that_is_included_with_a_prefix(app, ran):
    router = APIRouter()

    @router.post("/sub")
    async def sub(body: Number) -> int:
        return -body.x

    app.include_router(router, prefix="/more")
    add_route(app, ran)


@_case((ADD, True), (Ask("/mounted/add"), False))
def an_app_that_is_mounted(app, ran):
    mounted = FastAPI()
    add_route(mounted, ran)
    add_route(app, ran)
    app.mount("/mounted", mounted)


@long()
def an_app_that_is_mounted_in_front_of_all(app, ran):
    mounted = FastAPI()
    add_route(mounted, ["mounted"])
    app.mount("/", mounted)
    add_route(app, ran)


@long(ADD, Ask(headers=(JSON, (b"x-wants", b"mine"))), ADD)
def a_route_in_front_that_looks_at_more_than_the_path(app, ran):
    class Wanted(BaseRoute):
        def matches(self, scope):
            is_wanted = (b"x-wants", b"mine") in scope["headers"]
            return (Match.FULL, {"endpoint": None}) if is_wanted else (Match.NONE, {})

        async def handle(self, scope, receive, send):
            ran.append("mine")
            await PlainTextResponse("mine")(scope, receive, send)

    app.router.routes.insert(0, Wanted())
    add_route(app, ran)


@long(ADD, Ask(headers=(JSON, (b"host", b"mine.test"))), ADD)
def a_route_in_front_for_one_host(app, ran):
    mine = FastAPI()

    @mine.post("/add")
    async def of_mine() -> str:
        return "mine"

    app.router.routes.insert(0, Host("mine.test", mine))
    add_route(app, ran)


@long()
def a_route_class_of_the_authors_own(app, ran):
    class Timed(APIRoute):
        def get_route_handler(self):
            original = super().get_route_handler()

            async def timed(request):
                ran.append("timed")
                return await original(request)

            return timed

    app.router.route_class = Timed
    add_route(app, ran)


@long()
def a_route_that_was_wrapped(app, ran):
    add_route(app, ran)
    (route,) = (each for each in app.routes if getattr(each, "path", "") == "/add")
    original = route.app

    async def wrapped(scope, receive, send):
        ran.append("wrapped")
        await original(scope, receive, send)

    route.app = wrapped


@short(Ask(query="x=1"))
def an_endpoint_whose_signature_was_made(app, ran):
    async def add(**given: Any) -> Any:
        return {name: value.x for name, value in given.items()}

    kind = inspect.Parameter.KEYWORD_ONLY
    add.__signature__ = inspect.Signature([inspect.Parameter("number", kind, annotation=Number)])
    app.post("/add")(add)


# What a route asks FastAPI for


@long(Ask(query="times=3", headers=(JSON, (b"x-mine", b"yes"), (b"cookie", b"jar=full"))), ADD)
def headers_queries_and_cookies(app, ran):
    @app.post("/add")
    async def add(
        body: Number,
        times: Annotated[int, Query()],
        x_mine: Annotated[str, Header()] = "no",
        jar: Annotated[str, Cookie()] = "empty",
    ) -> Any:
        return [body.x * times, x_mine, jar]


@long()
def the_answers_headers(app, ran):
    @app.post("/add")
    async def add(body: Number, response: FastAPIResponse) -> int:
        response.headers["x-mine"] = "yes"
        response.status_code = 203
        return body.x


@long()
def work_for_later(app, ran):
    @app.post("/add")
    async def add(body: Number, later: BackgroundTasks) -> int:
        later.add_task(ran.append, "later")
        return body.x


@long(Ask(body=b'{"one": {"x": 1}, "other": {"x": 2}}'), ADD)
def two_bodies(app, ran):
    @app.post("/add")
    async def add(one: Number, other: Number) -> int:
        return one.x + other.x


@long(Ask(body=b'{"body": {"x": 1}}'), ADD)
def a_body_under_its_name(app, ran):
    @app.post("/add")
    async def add(body: Annotated[Number, Body(embed=True)]) -> int:
        return body.x


@long(Ask(body=b"x=4", headers=((b"content-type", b"application/x-www-form-urlencoded"),)), ADD)
def a_form(app, ran):
    pytest.importorskip("python_multipart")

    @app.post("/add")
    async def add(x: Annotated[int, Form()]) -> int:
        return x


@long()
def an_endpoint_that_is_a_plain_function(app, ran):
    @app.post("/add")
    def add(body: Number) -> int:
        return body.x


@long()
def an_endpoint_that_yields(app, ran):
    @app.post("/add")
    async def add(body: Number):
        yield {"x": body.x}
        yield {"x": body.x + 1}


@long()
def a_class_of_answers(app, ran):
    @app.post("/add", response_class=PlainTextResponse)
    async def add(body: Number) -> str:
        return "plain"


@long()
def a_class_of_answers_for_all(app, ran):
    app.router.default_response_class = PlainTextResponse

    @app.post("/add")
    async def add(body: Number) -> str:
        return "plain"


@long(ADD)
def a_status_of_its_own(app, ran):
    add_route(app, ran, status_code=201)


@long()
def a_status_without_a_body(app, ran):
    @app.post("/add", status_code=204)
    async def add(body: Number) -> None:
        return None


@long(Ask(root_path="/behind"))
def a_path_before_the_root(app, ran):
    add_route(app, ran)


@pytest.mark.parametrize("name", CASES)
async def test_each_case_is_answered_as_fastapi_alone_answers_it(name):
    case = CASES[name]
    alone, _, ran_alone = await told_by(FastAPI(), case)
    ours, is_short, ran = await told_by(ServerApp(), case)
    assert ours == alone
    assert ran == ran_alone
    assert tuple(is_short) == case.short


async def test_a_route_that_is_added_in_front_after_the_first_request_is_followed_from_then_on():
    app, ran = ServerApp(), []
    add_route(app, ran)
    assert await ADD.of(app) == (Told(200, [(b"content-length", b"11"), JSON], b'{"total":3}', ""), True)

    async def mine(request: Request) -> PlainTextResponse:
        return PlainTextResponse("mine")

    app.router.routes.insert(0, Route("/add", mine, methods=["POST"]))
    told, is_short = await ADD.of(app)
    assert (told.body, is_short) == (b"mine", False)
    app.router.routes.pop(0)
    told, is_short = await ADD.of(app)
    assert (told.body, is_short) == (b'{"total":3}', True)


async def test_a_dependency_may_be_overridden_at_any_time():
    def setup(app, ran):
        def given() -> int:
            return 1

        @app.post("/add")
        async def add(body: Number, more: int = Depends(given)) -> int:
            return body.x + more

        app.dependency_overrides[given] = lambda: 40

    (told,), _, _ = await told_by(ServerApp(), Case(setup, (ADD,), (False,)))
    assert told.body == b"42"


# Bodies


def endpoint_taking(kind: Any, default: Any = ...) -> Callable[..., Any]:
    async def endpoint(body: Any) -> Any:
        return repr(body)

    async def endpoint_with_default(body: Any = default) -> Any:
        return repr(body)

    chosen = endpoint if default is ... else endpoint_with_default
    chosen.__annotations__ = {"body": kind}
    return chosen


class Everything(BaseModel):
    x: Any = None
    text: str = ""
    whole: int = 0
    number: float = 0.0
    listed: list[Any] = []


async def _whole_request(request: Request) -> Any:
    return repr(await request.json())


async def _request_and_body(request: Request, body: Any = Body()) -> Any:
    return repr([await request.json(), body])


ENDPOINTS = {
    "a model": endpoint_taking(Everything),
    "a dict": endpoint_taking(dict),
    "anything": endpoint_taking(Annotated[Any, Body()]),
    "a list of integers": endpoint_taking(list[int]),
    "an integer": endpoint_taking(Annotated[int, Body()]),
    "a number": endpoint_taking(Annotated[float, Body()]),
    "a text": endpoint_taking(Annotated[str, Body()]),
    "bytes": endpoint_taking(Annotated[bytes, Body()]),
    "a dict or nothing": endpoint_taking(dict | None, None),
    "a dict or a default": endpoint_taking(dict | None, {"by": "default"}),
    "a model or a default": endpoint_taking(Number, Number(x=-1)),
    "a short list": endpoint_taking(Annotated[list, Body(max_length=5)]),
    "the request": _whole_request,
    "the request and anything": _request_and_body,
}
BODIES = {
    "an object": b'{"x": 1, "text": "a", "whole": 3, "number": 1.5, "listed": [1, {}, null]}',
    "an empty object": b"{}",
    "a list": b"[1, 2, 3]",
    "mixed": b'[1, "2", 3.0, true]',
    "a text": b'"word"',
    "a number": b"1.5",
    "true": b"true",
    "null": b"null",
    "nothing": b"",
    "blanks": b"  \r\n\t ",
    "blanks around": b' \r\n\t{"x" : 1 }\n ',
    "an odd blank": '{"x":\u00a01}'.encode(),
    "no JSON": b"x=1",
    "half an object": b'{"x": 1',
    "two objects": b"{}{}",
    "a comma too many": b'{"x": 1,}',
    "a list with a comma too many": b"[1,]",
    "single quotes": b"{'x': 1}",
    "a comment": b'{"x": 1} // one',
    "a key twice": b'{"x": 1, "x": 2, "text": "a", "text": "b"}',
    "NaN": b'{"x": NaN, "number": NaN}',
    "minus NaN": b'{"x": -NaN}',
    "nan": b'{"x": nan}',
    "endless": b'{"x": Infinity, "number": -Infinity}',
    "plus endless": b'{"x": +Infinity}',
    "Inf": b'{"x": Inf}',
    "beyond 64 bits": b'{"x": 12345678901234567890123, "whole": -98765432109876543210}',
    "of 5000 digits": b'{"x": ' + b"9" * 5000 + b"}",
    "leading zeros": b'{"x": 007}',
    "minus zero": b'{"x": -0, "number": -0.0}',
    "a plus": b'{"x": +1}',
    "a point at the end": b'{"x": 1.}',
    "a point at the beginning": b'{"x": .5}',
    "an exponent": b'{"x": 1E5, "number": 1e-7, "whole": 1e2}',
    "half an exponent": b'{"x": 1e}',
    "a float of many digits": b'{"x": 0.1000000000000000055511151231257827021181583404541015625, "number": 5e-324}',
    "a float beyond all": b'{"x": 1e400, "number": -1e400}',
    "a float below all": b'{"x": 1e-400}',
    "accents": '{"x": "é漢\U0001f600", "text": "\u2028"}'.encode(),
    "escapes": rb'{"x": "\u00e9\ud83d\ude00\/\b\f\n\r\t\\\"", "text": "\u0000"}',
    "half a surrogate": rb'{"x": "\ud800", "text": "\udc00x"}',
    "surrogates the wrong way round": rb'{"text": "\ude00\ud83d"}',
    "an escape that is none": rb'{"x": "\q"}',
    "a line break in a text": b'{"x": "a\nb"}',
    "a zero in a text": b'{"x": "a\x00b"}',
    "a control sign": b'{"x": "\x1f\x7f"}',
    "no UTF-8": b'{"x": "\xff"}',
    "an encoded surrogate": b'{"x": "\xed\xa0\x80"}',
    "Latin-1": '{"x": "é"}'.encode("latin-1"),
    "UTF-16": '{"x": 1}'.encode("utf-16"),
    "UTF-16 without a mark": '{"x": "word"}'.encode("utf-16-le"),
    "UTF-32": '{"x": 1}'.encode("utf-32-be"),
    "UTF-8 with a mark": b'\xef\xbb\xbf{"x": 1}',
    "deep": b'{"x":' * 150 + b"1" + b"}" * 150,
    "deeper": b"[" * 300 + b"]" * 300,
    "many keys": orjson.dumps({str(number): number for number in range(300)}),
    "an empty key": b'{"": 1, "x": {"": []}}',
    "a key without quotes": b'{x: 1}',
    "a key that is a number": b'{1: 1}',
}  # fmt: skip
TYPES = {
    "application/json": True,
    "application/json;charset=utf-8": True,
    "Application/JSON": False,
    " application/json": False,
    "application/json-lines": False,
    "application/problem+json": False,
    "text/json": False,
    "text/plain": False,
    "application/x-www-form-urlencoded": False,
    "": False,
}


@pytest.mark.parametrize("kind", ENDPOINTS)
async def test_each_body_is_taken_or_refused_as_fastapi_does(kind):
    def setup(app, ran):
        app.post("/add")(ENDPOINTS[kind])

    asks = tuple(Ask(body=body) for body in BODIES.values())
    alone, _, _ = await told_by(FastAPI(), Case(setup, asks, ()))
    ours, is_short, _ = await told_by(ServerApp(), Case(setup, asks, ()))
    assert dict(zip(BODIES, ours, strict=True)) == dict(zip(BODIES, alone, strict=True))
    # What is told to be wrong with a body is FastAPI's to tell.
    assert [told.status for told, took in zip(ours, is_short, strict=True) if took].count(422) == 0
    assert any(is_short)


@pytest.mark.parametrize("kind", ENDPOINTS)
async def test_each_type_of_content_is_taken_or_refused_as_fastapi_does(kind):
    def setup(app, ran):
        app.post("/add")(ENDPOINTS[kind])

    headers = [((b"content-type", name.encode()),) for name in TYPES] + [(), (JSON, (b"content-type", b"text/plain"))]
    asks = tuple(Ask(body=b'{"x": 1}', headers=each) for each in headers)
    alone, _, _ = await told_by(FastAPI(), Case(setup, asks, ()))
    ours, is_short, _ = await told_by(ServerApp(), Case(setup, asks, ()))
    assert ours == alone
    if kind == "a dict":
        assert is_short == [*TYPES.values(), False, True]


@pytest.mark.parametrize("chunks", [(b'{"x"',), (b"",), (b'{"x": 1}', b"")])
async def test_a_caller_that_leaves_before_its_body_is_whole_is_no_failure_of_the_server(chunks, caplog):
    ask = Ask(chunks=chunks, is_complete=False)
    alone, _, ran_alone = await told_by(FastAPI(), case := Case(add_route, (ask,), ()))
    ours, _, ran = await told_by(ServerApp(), case)
    assert ours == alone
    assert alone[0].status == 400
    assert ran == ran_alone == []

    class Server(SimpleResourcesServer):
        async def verify(self, body: BaseVerifyRequest) -> float:
            raise NotImplementedError

    server = make_server(Server, name="calm")
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    await replace(ask, path="/verify").of(app)
    assert not caplog.records


async def test_a_caller_that_leaves_while_an_endpoint_reads_for_itself_is_heard_there():
    def setup(app, ran):
        @app.post("/add")
        async def add(request: Request) -> Any:
            try:
                return {"body": (await request.body()).decode()}
            except ClientDisconnect:
                ran.append("left")
                raise

    ask = Ask(chunks=(b'{"x"',), is_complete=False)
    alone, _, _ = await told_by(FastAPI(), case := Case(setup, (ask,), ()))
    ours, _, ran = await told_by(ServerApp(), case)
    assert ours == alone
    assert ran == ["left"]


# Servers


class Count(SessionState):
    number: int = 0


class Plain(SimpleResourcesServer):
    @tool
    async def add(self, by: int, count: Count) -> int:
        """Add."""
        count.number += by
        return count.number

    async def verify(self, body: BaseVerifyRequest, count: Count) -> float:
        return float(count.number)


ROW = {"responses_create_params": {"input": []}}
ANSWERED = orjson.dumps({**ROW, "response": reply("Done.").model_dump(mode="json")})
SEED, VERIFY, CALL = (
    Ask("/seed_session", orjson.dumps(ROW)), Ask("/verify", ANSWERED), Ask("/add", b'{"by": 2}'),
)  # fmt: skip


def app_of(cls: type[Any]) -> FastAPI:
    server = make_server(cls, name="plain")
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    server.setup_call_layer(app)
    return app


@pytest.mark.parametrize("ask", [SEED, VERIFY, CALL], ids=["seed_session", "verify", "tool"])
async def test_the_routes_of_a_rollout_have_the_short_way(ask):
    told, is_short = await ask.of(app_of(Plain))
    assert (told.status, is_short) == (200, True)


async def test_calls_are_counted_by_their_routes_whichever_way_they_go():
    app = app_of(Plain)
    for ask in (SEED, CALL, CALL, replace(CALL, body=b"{}"), replace(CALL, path="/none")):
        await ask.of(app)
    told, _ = await Ask(METRICS_PATH, b"", (), "GET").of(app)
    lines = re.findall(r"requests_total\{(.*?)\} (\d+)", told.body.decode())
    counted = {
        (re.search(r'route="(.*?)"', labels).group(1), re.search(r'status="(.*?)"', labels).group(1)): int(number)  # type: ignore[union-attr]
        for labels, number in lines
    }
    assert counted[("/add", "200")] == 2
    assert counted[("/add", "422")] == 1
    assert counted[("/seed_session", "200")] == 1
    assert ("/none", "404") not in counted


class OwnSessions(Plain):
    def setup_session_middleware(self, app):
        app.add_middleware(
            Front,
            sessions=Sessions(cookie="mine", secret=standing_of(self).cookie_secret, life=standing_of(self).life),
        )


async def test_sessions_of_an_authors_own_are_the_ones_that_are_used():
    told, is_short = await CALL.of(app_of(OwnSessions))
    cookies = [value for name, value in told.headers if name == b"set-cookie"]
    assert [value.partition(b"=")[0] for value in cookies] == [b"mine"]
    again, _ = await replace(CALL, headers=(JSON, (b"cookie", cookies[0].partition(b";")[0]))).of(app_of(OwnSessions))
    assert (told.body, again.status, is_short) == (b"2", 200, True)


class OwnVerify(Plain):
    def setup_webserver(self):
        app = super().setup_webserver()

        async def graded(request: Request):
            return JSONResponse({"reward": 0.25, "asked": len(await request.body())})

        app.router.routes.insert(0, Route("/verify", graded, methods=["POST"]))
        return app


class OwnDispatch(Plain):
    def tools(self):
        return []

    def setup_webserver(self):
        app = super().setup_webserver()

        @app.post("/{tool_name}")
        async def dispatch(tool_name: str, request: Request):
            return {tool_name: await request.json()}

        return app


async def test_a_verify_of_an_authors_own_is_the_one_that_grades():
    told, is_short = await VERIFY.of(app_of(OwnVerify))
    assert orjson.loads(told.body) == {"reward": 0.25, "asked": len(ANSWERED)}
    assert not is_short


async def test_a_route_for_any_tool_leaves_the_servers_own_routes_as_they_are():
    app = app_of(OwnDispatch)
    assert (await CALL.of(app))[0].body == b'{"add":{"by":2}}'
    graded, is_short = await VERIFY.of(app)
    assert (orjson.loads(graded.body)["reward"], is_short) == (0.0, True)


class Promising(Plain):
    def setup_webserver(self):
        app = super().setup_webserver()

        @app.post("/promise")
        async def promise(body: Number) -> Sum:
            return {"total": "many"}  # type: ignore[return-value]

        return app


async def test_an_answer_that_is_not_what_was_promised_is_told_with_the_line_of_its_endpoint():
    told, is_short = await Ask("/promise").of(app_of(Promising))
    assert (told.status, is_short) == (500, True)
    detail = orjson.loads(told.body)["detail"]
    assert "raised ResponseValidationError" in detail
    assert __file__ in detail
    assert "POST /promise" in detail


async def test_a_failure_that_no_handler_takes_reaches_the_layer_that_answers_for_it():
    def setup(app, ran):
        @app.post("/add")
        async def add(body: Number) -> Any:
            raise ZeroDivisionError("of course")

        app.add_middleware(Front, faults=Faults("plain", Plain.FAILURE))

    (alone,), _, _ = await told_by(FastAPI(), case := Case(setup, (ADD,), ()))
    (ours,), _, _ = await told_by(ServerApp(), case)
    assert ours == alone
    assert "ZeroDivisionError: of course" in orjson.loads(ours.body)["detail"]

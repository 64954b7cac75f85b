"""Routes that are replaced, mounted, included, wrapped, or after another one."""

from __future__ import annotations

import inspect
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi import Response as FastAPIResponse
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Match, Route

from tests.web.fast_routes.asking import ADD, JSON, Ask, Cases, Number, add_route

CASES = Cases()


@CASES.slow()
def a_dependency_of_the_route(app, ran):
    add_route(app, ran, dependencies=[Depends(lambda: ran.append("asked"))])


@CASES.slow()
def a_dependency_of_the_endpoint(app, ran):
    def session():
        ran.append("opened")
        yield 5
        ran.append("closed")

    @app.post("/add")
    async def add(body: Number, opened: int = Depends(session)) -> int:
        return body.x + opened


@CASES.slow()
def a_dependency_of_the_whole_router(app, ran):
    app.router.dependencies.append(Depends(lambda: ran.append("asked")))
    add_route(app, ran)


@CASES.slow()
def a_dependency_that_refuses(app, ran):
    def refuse():
        raise HTTPException(401)

    add_route(app, ran, dependencies=[Depends(refuse)])


@CASES.slow()
def an_endpoint_that_is_replaced_by_one_in_front(app, ran):
    add_route(app, ran)

    async def mine(request: Request) -> FastAPIResponse:
        ran.append("mine")
        return PlainTextResponse("mine")

    app.router.routes.insert(0, Route("/add", mine, methods=["POST"]))


@CASES.fast()
def an_endpoint_that_is_replaced_by_a_plain_one(app, ran):
    add_route(app, ran)
    app.router.routes[:] = [each for each in app.router.routes if getattr(each, "path", "") != "/add"]

    @app.post("/add")
    async def mine(body: Number) -> str:
        return "mine"


@CASES.of((ADD, False), (Ask("/other"), False))
def a_route_for_any_path_in_front(app, ran):
    @app.post("/{tool_name}")
    async def any_tool(tool_name: str, request: Request):
        return {tool_name: await request.json()}

    add_route(app, ran)


@CASES.of((ADD, True), (Ask("/other"), False), (Ask("/{tool_name}"), False))
def a_route_for_any_path_after(app, ran):
    add_route(app, ran)

    @app.post("/{tool_name}")
    async def any_tool(request: Request):
        return {request.path_params["tool_name"]: await request.json()}


@CASES.slow(ADD, Ask(method="GET", body=b""))
def a_route_of_another_method_in_front(app, ran):
    @app.put("/add")
    async def put() -> str:
        return "put"

    @app.api_route("/add", methods=["GET", "POST"], dependencies=[Depends(lambda: ran.append("both"))])
    async def both() -> str:
        return "both"

    add_route(app, ran)


@CASES.of((ADD, True), (Ask(method="GET"), False), (Ask(method="HEAD"), False), (Ask("/add/"), False))
def a_method_or_a_path_that_is_not_there(app, ran):
    add_route(app, ran)


@CASES.slow()
def a_router_that_is_included(app, ran):
    router = APIRouter(dependencies=[Depends(lambda: ran.append("asked"))])

    @router.post("/add")
    async def add(body: Number) -> int:
        return body.x

    app.include_router(router)
    add_route(app, ran)


@CASES.of((ADD, False), (Ask("/more/sub"), False))
def a_router_that_is_included_with_a_prefix(app, ran):
    router = APIRouter()

    @router.post("/sub")
    async def sub(body: Number) -> int:
        return -body.x

    app.include_router(router, prefix="/more")
    add_route(app, ran)


@CASES.of((ADD, True), (Ask("/mounted/add"), False))
def an_app_that_is_mounted(app, ran):
    mounted = FastAPI()
    add_route(mounted, ran)
    add_route(app, ran)
    app.mount("/mounted", mounted)


@CASES.slow()
def an_app_that_is_mounted_in_front_of_all(app, ran):
    mounted = FastAPI()
    add_route(mounted, ["mounted"])
    app.mount("/", mounted)
    add_route(app, ran)


@CASES.slow(ADD, Ask(headers=(JSON, (b"x-wants", b"mine"))), ADD)
def a_route_in_front_that_checks_a_header(app, ran):
    class Wanted(BaseRoute):
        def matches(self, scope):
            is_wanted = (b"x-wants", b"mine") in scope["headers"]
            return (Match.FULL, {"endpoint": None}) if is_wanted else (Match.NONE, {})

        async def handle(self, scope, receive, send):
            ran.append("mine")
            await PlainTextResponse("mine")(scope, receive, send)

    app.router.routes.insert(0, Wanted())
    add_route(app, ran)


@CASES.slow(ADD, Ask(headers=(JSON, (b"host", b"mine.test"))), ADD)
def a_route_in_front_for_one_host(app, ran):
    mine = FastAPI()

    @mine.post("/add")
    async def of_mine() -> str:
        return "mine"

    app.router.routes.insert(0, Host("mine.test", mine))
    add_route(app, ran)


@CASES.slow()
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


@CASES.slow()
def a_route_that_was_wrapped(app, ran):
    add_route(app, ran)
    (route,) = (each for each in app.routes if getattr(each, "path", "") == "/add")
    original = route.app

    async def wrapped(scope, receive, send):
        ran.append("wrapped")
        await original(scope, receive, send)

    route.app = wrapped


@CASES.fast(Ask(query="x=1"))
def an_endpoint_whose_signature_was_made(app, ran):
    async def add(**given: Any) -> Any:
        return {name: value.x for name, value in given.items()}

    kind = inspect.Parameter.KEYWORD_ONLY
    add.__signature__ = inspect.Signature([inspect.Parameter("number", kind, annotation=Number)])
    app.post("/add")(add)

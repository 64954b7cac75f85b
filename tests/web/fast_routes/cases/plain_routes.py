"""Plain routes that all use the fast path."""

from __future__ import annotations

from typing import Any

from fastapi import BackgroundTasks
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from tests.web.fast_routes.asking import ADD, JSON, Ask, Cases, Number, Sum, add_route

CASES = Cases()


@CASES.fast(ADD, Ask(body=b'{"x": 2, "more": [1, 2]}'), Ask(headers=((b"content-type", b"application/json; a=b"),)))
def a_body(app, ran):
    add_route(app, ran)


@CASES.fast(Ask(query="x=1&y=2", headers=(JSON, (b"x-mine", b"yes"), (b"cookie", b"a=b"))))
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


@CASES.fast(ADD, Ask(body=b""), Ask(body=b"not JSON", headers=()), Ask(chunks=(b"a" * 9, b"", b"b")))
def the_request_alone(app, ran):
    @app.post("/add")
    async def add(request: Request):
        chunks = [chunk async for chunk in request.stream()]
        return {"body": b"".join(chunks).decode(), "again": await request.is_disconnected()}


@CASES.fast(ADD, Ask(body=b""))
def nothing_at_all(app, ran):
    @app.post("/add")
    async def add() -> str:
        return "asked"


@CASES.fast(Ask(chunks=(b'{"x"', b"", b": 4", b"1}")))
def a_body_in_several_chunks(app, ran):
    add_route(app, ran)


@CASES.fast()
def the_state_of_the_app_and_of_the_lifespan(app, ran):
    app.state.word = "kept"

    @app.post("/add")
    async def add(request: Request, body: Number):
        request.state.own = 1
        return [request.app.state.word, request.app is app, request.state.own]


@CASES.fast()
def a_response_model_with_aliases(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Sum:
        return Sum(total=body.x)


@CASES.fast()
def a_response_model_by_name(app, ran):
    @app.post("/add", response_model=Sum, response_model_by_alias=False, response_model_exclude_none=True)
    async def add(body: Number):
        return {"total": body.x, "left": "out"}


@CASES.fast()
def a_response_model_without_what_is_unset(app, ran):
    @app.post("/add", response_model_exclude_unset=True)
    async def add(body: Number) -> Sum:
        return Sum(total=body.x)


@CASES.fast()
def a_response_model_without_its_defaults(app, ran):
    @app.post("/add", response_model_exclude_defaults=True)
    async def add(body: Number) -> Sum:
        return Sum(total=body.x, spare=None)


@CASES.fast()
def some_fields_of_a_response_model(app, ran):
    @app.post("/add", response_model_include={"total"})
    async def add(body: Number) -> Sum:
        return Sum(total=body.x, spare="excluded")


@CASES.fast()
def all_but_some_fields_of_a_response_model(app, ran):
    @app.post("/add", response_model_exclude={"total"})
    async def add(body: Number) -> Sum:
        return Sum(total=body.x, spare="included")


@CASES.fast()
def no_response_model(app, ran):
    @app.post("/add", response_model=None)
    async def add(body: Number) -> Sum:
        return Sum(total=body.x)


@CASES.fast()
def an_answer_that_is_a_response(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        answer = JSONResponse({"x": body.x}, 202, headers={"x-mine": "yes"})
        answer.set_cookie("a", "1")
        answer.set_cookie("b", "2")
        return answer


@CASES.fast()
def an_answer_with_background_work(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        tasks = BackgroundTasks()
        tasks.add_task(ran.append, "afterwards")
        return PlainTextResponse("soon", background=tasks)


@CASES.fast()
def an_answer_that_streams(app, ran):
    async def parts():
        for number in range(3):
            ran.append(number)
            yield f"data: {number}\n\n"

    @app.post("/add")
    async def add(body: Number) -> Any:
        return StreamingResponse(parts(), media_type="text/event-stream")


@CASES.fast()
def a_stream_that_breaks(app, ran):
    async def parts():
        yield "one"
        raise ValueError("no more")

    @app.post("/add")
    async def add(body: Number) -> Any:
        return StreamingResponse(parts())


@CASES.fast()
def an_answer_that_breaks_its_annotation(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Sum:
        return {"total": "many"}  # type: ignore[return-value]


@CASES.fast()
def an_answer_that_no_json_can_hold(app, ran):
    @app.post("/add")
    async def add(body: Number):
        return {"x": float("nan")}


@CASES.fast(Ask(body=b'{"x": 1}'), Ask(body=b'{"x": "1"}'))
def a_default_in_place_of_a_body(app, ran):
    @app.post("/add")
    async def add(body: Number = Number(x=7)):  # noqa: B008
        return body.x


@CASES.fast(ADD, Ask(path="/sub"))
def several_routes(app, ran):
    add_route(app, ran)

    @app.post("/sub")
    async def sub(body: Number) -> int:
        return -body.x


@CASES.fast()
def the_names_of_fields_by_alias(app, ran):
    class Aliased(BaseModel):
        value: int = Field(alias="x")

    async def add(body: Any) -> Any:
        return {"value": body.value, "all": body}

    add.__annotations__ = {"body": Aliased}
    app.post("/add")(add)

"""Exceptions of an endpoint, and their handlers."""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, field_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from tests.web.fast_routes.asking import ADD, Ask, Cases, Number, add_route

CASES = Cases()


@CASES.fast()
def an_http_exception(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(409, {"why": "because"}, headers={"x-why": "because"})


@CASES.fast()
def an_unexpected_exception(app, ran):
    @app.post("/add")
    async def add(body: Number) -> Any:
        raise ZeroDivisionError("of course")


class Special(KeyError):
    pass


@CASES.fast()
def an_exception_with_a_handler_for_its_base(app, ran):
    @app.exception_handler(LookupError)
    async def respond(request, error):
        ran.append((type(error), request.url.path, await request.body()))
        return JSONResponse({"error": "special"}, 422, headers={"x-by": "handler"})

    @app.post("/add")
    async def add(request: Request, body: Number) -> Any:
        raise Special


@CASES.fast()
def an_exception_with_a_plain_function_for_a_handler(app, ran):
    app.add_exception_handler(Special, lambda request, error: PlainTextResponse(f"{request.method}", 499))

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise Special


@CASES.fast()
def an_http_exception_whose_handler_was_replaced(app, ran):
    @app.exception_handler(HTTPException)
    async def respond(request, error):
        return PlainTextResponse(str(error.detail), error.status_code + 1)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(418, "tea")


@CASES.fast()
def a_status_with_a_handler(app, ran):
    @app.exception_handler(418)
    async def respond(request, error):
        return PlainTextResponse("tea again", 200)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(418, "tea")


@CASES.fast(ADD, Ask(body=b'{"x": 500}'))
def a_handler_for_every_exception(app, ran):
    @app.exception_handler(Exception)
    async def respond(request, error):
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


@CASES.fast(ADD)
def a_handler_for_status_500(app, ran):
    @app.exception_handler(500)
    async def respond(request, error):
        return PlainTextResponse(f"all: {error}", 500)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise HTTPException(500, "five hundred")


@CASES.fast()
def a_handler_that_fails_itself(app, ran):
    @app.exception_handler(Special)
    async def respond(request, error):
        raise RuntimeError("neither")

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise Special


@CASES.slow(Ask(body=b'{"x": "many"}'))
def a_handler_for_rejected_bodies(app, ran):
    @app.exception_handler(RequestValidationError)
    async def respond(request, error):
        ran.append(error.body)
        return JSONResponse({"problems": len(error.errors())}, 400)

    add_route(app, ran)


@CASES.fast()
def a_validator_that_raises_another_error(app, ran):
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

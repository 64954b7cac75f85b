"""Routes with parameters other than the body, and with settings for the response."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Body, Cookie, Form, Header, Query
from fastapi import Response as FastAPIResponse
from starlette.responses import PlainTextResponse

from tests.web.fast_routes.asking import ADD, JSON, Ask, Cases, Number, add_route

CASES = Cases()


@CASES.slow(Ask(query="times=3", headers=(JSON, (b"x-mine", b"yes"), (b"cookie", b"jar=full"))), ADD)
def headers_queries_and_cookies(app, ran):
    @app.post("/add")
    async def add(
        body: Number,
        times: Annotated[int, Query()],
        x_mine: Annotated[str, Header()] = "no",
        jar: Annotated[str, Cookie()] = "empty",
    ) -> Any:
        return [body.x * times, x_mine, jar]


@CASES.slow()
def the_answers_headers(app, ran):
    @app.post("/add")
    async def add(body: Number, response: FastAPIResponse) -> int:
        response.headers["x-mine"] = "yes"
        response.status_code = 203
        return body.x


@CASES.slow()
def work_for_later(app, ran):
    @app.post("/add")
    async def add(body: Number, later: BackgroundTasks) -> int:
        later.add_task(ran.append, "later")
        return body.x


@CASES.slow(Ask(body=b'{"one": {"x": 1}, "other": {"x": 2}}'), ADD)
def two_bodies(app, ran):
    @app.post("/add")
    async def add(one: Number, other: Number) -> int:
        return one.x + other.x


@CASES.slow(Ask(body=b'{"body": {"x": 1}}'), ADD)
def a_body_under_its_name(app, ran):
    @app.post("/add")
    async def add(body: Annotated[Number, Body(embed=True)]) -> int:
        return body.x


@CASES.slow(Ask(body=b"x=4", headers=((b"content-type", b"application/x-www-form-urlencoded"),)), ADD)
def a_form(app, ran):
    pytest.importorskip("python_multipart")

    @app.post("/add")
    async def add(x: Annotated[int, Form()]) -> int:
        return x


@CASES.slow()
def an_endpoint_that_is_a_plain_function(app, ran):
    @app.post("/add")
    def add(body: Number) -> int:
        return body.x


@CASES.slow()
def an_endpoint_that_yields(app, ran):
    @app.post("/add")
    async def add(body: Number):
        yield {"x": body.x}
        yield {"x": body.x + 1}


@CASES.slow()
def a_class_of_answers(app, ran):
    @app.post("/add", response_class=PlainTextResponse)
    async def add(body: Number) -> str:
        return "plain"


@CASES.slow()
def a_class_of_answers_for_all(app, ran):
    app.router.default_response_class = PlainTextResponse

    @app.post("/add")
    async def add(body: Number) -> str:
        return "plain"


@CASES.slow(ADD)
def a_status_of_its_own(app, ran):
    add_route(app, ran, status_code=201)


@CASES.slow()
def a_status_without_a_body(app, ran):
    @app.post("/add", status_code=204)
    async def add(body: Number) -> None:
        return None


@CASES.slow(Ask(root_path="/behind"))
def a_path_before_the_root(app, ran):
    add_route(app, ran)

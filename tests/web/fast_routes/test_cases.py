"""The short way of plain routes: each answers as it does with FastAPI alone, and the author's code always runs."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from nemo_gym.web.app import ServerApp
from tests.web.fast_routes.asking import ADD, JSON, Case, Number, Told, add_route, told_by
from tests.web.fast_routes.cases import failures, middlewares, parameters, plain_routes, routes

EVERY_CASE = {
    **plain_routes.CASES, **middlewares.CASES, **failures.CASES, **routes.CASES, **parameters.CASES,
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY_CASE)
async def test_each_case_is_answered_as_fastapi_alone_answers_it(name):
    case = EVERY_CASE[name]
    alone, _, ran_alone = await told_by(FastAPI(), case)
    ours, is_short, ran = await told_by(ServerApp(), case)
    assert ours == alone
    assert ran == ran_alone
    assert tuple(is_short) == case.short


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

"""The fast path of plain routes gives the same results as plain FastAPI, and the author's code always runs."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from nemo_gym.web.app import ServerApp
from tests.each_case import each_case
from tests.web.fast_routes.asking import ADD, JSON, Case, Number, Outcome, add_route, outcomes_of
from tests.web.fast_routes.cases import failures, middlewares, parameters, plain_routes, routes

EVERY_CASE = {
    **plain_routes.CASES, **middlewares.CASES, **failures.CASES, **routes.CASES, **parameters.CASES,
}  # fmt: skip


@each_case("name", EVERY_CASE)
async def test_each_case_matches_plain_fastapi(name):
    case = EVERY_CASE[name]
    alone, _, ran_alone = await outcomes_of(FastAPI(), case)
    ours, is_fast, ran = await outcomes_of(ServerApp(), case)
    assert ours == alone
    assert ran == ran_alone
    assert tuple(is_fast) == case.fast


@pytest.mark.parametrize("kind", [HTTPException, KeyError])
async def test_broken_stream_stays_broken_despite_a_handler(kind):
    async def parts():
        yield "one"
        raise kind(418)

    def setup(app, ran):
        app.exception_handler(KeyError)(lambda request, error: JSONResponse({"never": "sent"}))

        @app.post("/add")
        async def add(body: Number) -> Any:
            return StreamingResponse(parts())

    (alone,), _, _ = await outcomes_of(FastAPI(), case := Case(setup, (ADD,), (True,)))
    (ours,), _, _ = await outcomes_of(ServerApp(), case)
    assert (ours.status, ours.body) == (alone.status, alone.body) == (200, b"one")
    # Both raise, which ends the connection; the errors themselves may differ.
    assert alone.raised
    assert ours.raised


async def test_route_added_in_front_later_takes_effect():
    app, ran = ServerApp(), []
    add_route(app, ran)
    assert await ADD.of(app) == (Outcome(200, [(b"content-length", b"11"), JSON], b'{"total":3}', ""), True)

    async def mine(request: Request) -> PlainTextResponse:
        return PlainTextResponse("mine")

    app.router.routes.insert(0, Route("/add", mine, methods=["POST"]))
    outcome, is_fast = await ADD.of(app)
    assert (outcome.body, is_fast) == (b"mine", False)
    app.router.routes.pop(0)
    outcome, is_fast = await ADD.of(app)
    assert (outcome.body, is_fast) == (b'{"total":3}', True)


async def test_dependency_may_be_overridden_at_any_time():
    def setup(app, ran):
        def given() -> int:
            return 1

        @app.post("/add")
        async def add(body: Number, more: int = Depends(given)) -> int:
            return body.x + more

        app.dependency_overrides[given] = lambda: 40

    (outcome,), _, _ = await outcomes_of(ServerApp(), Case(setup, (ADD,), (False,)))
    assert outcome.body == b"42"

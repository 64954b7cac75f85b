"""The routes of a resources server use the fast path, and an author's replacements take precedence."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nemo_gym import BaseVerifyRequest, SessionState, SimpleResourcesServer, tool
from nemo_gym.servers.base import context_of
from nemo_gym.testing import make_server, reply
from nemo_gym.web.app import ServerApp
from nemo_gym.web.failures import Failures
from nemo_gym.web.middleware import CallMiddleware
from nemo_gym.web.session_cookies import Sessions
from nemo_gym.web.telemetry import METRICS_PATH
from tests.each_case import each_case
from tests.web.fast_routes.asking import ADD, JSON, Ask, Case, Number, Sum, outcomes_of


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


@each_case("ask", [SEED, VERIFY, CALL])
async def test_rollout_routes_use_the_fast_path(ask):
    outcome, is_fast = await ask.of(app_of(Plain))
    assert (outcome.status, is_fast) == (200, True)


async def test_calls_on_both_paths_are_counted_by_route():
    app = app_of(Plain)
    for ask in (SEED, CALL, CALL, replace(CALL, body=b"{}"), replace(CALL, path="/none")):
        await ask.of(app)
    outcome, _ = await Ask(METRICS_PATH, b"", (), "GET").of(app)
    lines = re.findall(r"requests_total\{(.*?)\} (\d+)", outcome.body.decode())
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
            CallMiddleware,
            sessions=Sessions(cookie="mine", secret=context_of(self).cookie_secret, life=context_of(self).life),
        )


async def test_authors_own_sessions_are_used():
    outcome, is_fast = await CALL.of(app_of(OwnSessions))
    cookies = [value for name, value in outcome.headers if name == b"set-cookie"]
    assert [value.partition(b"=")[0] for value in cookies] == [b"mine"]
    again, _ = await replace(CALL, headers=(JSON, (b"cookie", cookies[0].partition(b";")[0]))).of(app_of(OwnSessions))
    assert (outcome.body, again.status, is_fast) == (b"2", 200, True)


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


async def test_authors_own_verify_route_is_used():
    outcome, is_fast = await VERIFY.of(app_of(OwnVerify))
    assert orjson.loads(outcome.body) == {"reward": 0.25, "asked": len(ANSWERED)}
    assert not is_fast


async def test_catch_all_route_keeps_the_servers_own_routes():
    app = app_of(OwnDispatch)
    assert (await CALL.of(app))[0].body == b'{"add":{"by":2}}'
    graded, is_fast = await VERIFY.of(app)
    assert (orjson.loads(graded.body)["reward"], is_fast) == (0.0, True)


class Promising(Plain):
    def setup_webserver(self):
        app = super().setup_webserver()

        @app.post("/promise")
        async def promise(body: Number) -> Sum:
            return {"total": "many"}  # type: ignore[return-value]

        return app


async def test_invalid_response_is_reported_with_the_endpoints_line():
    outcome, is_fast = await Ask("/promise").of(app_of(Promising))
    assert (outcome.status, is_fast) == (500, True)
    detail = orjson.loads(outcome.body)["detail"]
    assert "raised ResponseValidationError" in detail
    assert __file__ in detail
    assert "POST /promise" in detail


async def test_unhandled_failure_reaches_the_failure_layer():
    def setup(app, ran):
        @app.post("/add")
        async def add(body: Number) -> Any:
            raise ZeroDivisionError("of course")

        app.add_middleware(CallMiddleware, failures=Failures("plain", Plain.FAILURE))

    (alone,), _, _ = await outcomes_of(FastAPI(), case := Case(setup, (ADD,), ()))
    (ours,), _, _ = await outcomes_of(ServerApp(), case)
    assert ours == alone
    assert "ZeroDivisionError: of course" in orjson.loads(ours.body)["detail"]

"""Failures cross servers with their cause: kind, server and message."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import StreamingResponse

from nemo_gym import (
    AgentFailed,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    EnvironmentFailed,
    InvalidTask,
    JudgeFailed,
    ModelFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    Overloaded,
    ServerLost,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
    SimpleResponsesAPIModel,
    failure_of_reply,
    get_response_json,
    raise_for_status,
    tool,
)
from nemo_gym.calls.problems import Problem
from nemo_gym.servers.base import context_of
from nemo_gym.testing import make_server, on_a_port, serving
from nemo_gym.web.failures import Failures
from nemo_gym.web.middleware import CallMiddleware
from tests.each_case import each_case

ROW = {"responses_create_params": {"input": "hi"}}


class Number(BaseModel):
    number: int


class Arena(SimpleResourcesServer):
    @tool
    async def fail(self, how: str) -> str:
        """Fail as asked."""
        raise {
            "bug": ZeroDivisionError("of nothing"),
            "long": ValueError("x" * 5000),
            "judge": JudgeFailed("the judge is silent", server="judge"),
            "nameless": EnvironmentFailed("the disk is full"),
            "refused": HTTPException(status_code=409, detail="not now"),
        }[how]

    async def mistyped(self) -> Number:
        return {"number": "many"}

    async def raw(self, request: Request) -> str:
        return str(len(await request.body()))

    async def breaks_off(self) -> StreamingResponse:
        async def parts():
            yield b"first"
            raise RuntimeError("second")

        return StreamingResponse(parts())

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/mistyped")(self.mistyped)
        app.post("/raw")(self.raw)
        app.post("/breaks_off")(self.breaks_off)
        return app


class Agent(SimpleResponsesAPIAgent):
    """Passes on the resources server's response in the way that the row names."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise RuntimeError("a bug of the agent's own")

    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        how, way = body.responses_create_params.input.split()
        if how == "model":
            await raise_for_status(await self.server_client.post("policy", "/v1/responses", json={"input": way}))
        if how == "nowhere":
            await self.server_client.post("nowhere", "/fail")
        reply = await self.server_client.post("arena", "/fail", json={"how": how})
        if way == "typed":
            raise failure_of_reply(
                reply.status, await reply.read(), server="arena", during="/fail", otherwise=EnvironmentFailed
            )
        await raise_for_status(reply)
        return await get_response_json(reply)


class Refusing(SimpleResponsesAPIModel):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise HTTPException(int(body.input), "tool_choice names no tool")

    async def chat_completions(self, body: NeMoGymResponseCreateParamsNonStreaming) -> None:
        raise NotImplementedError


@pytest.fixture
def agent():
    servers = [make_server(Arena, name="arena"), make_server(Refusing, name="policy")]
    return make_server(Agent, name="agent", servers=servers)


@pytest.fixture
async def caller(agent):
    """The client of a third server, which calls the agent."""
    outermost = make_server(Arena, name="caller", servers=[agent])
    async with serving(outermost):
        yield outermost.server_client


async def problem_of(reply: Any) -> tuple[int, str, str | None, str]:
    assert reply.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(await reply.json())
    assert problem.status == reply.status
    return problem.status, problem.failure_class, problem.server, problem.detail


@pytest.mark.parametrize("way", ["typed", "raised"])
@pytest.mark.parametrize(
    ("how", "status", "failure_class", "server", "detail"),
    [
        (
            "bug",
            500,
            "environment_failed",
            "arena",
            "arena: /fail raised ZeroDivisionError: of nothing; its log has the traceback",
        ),
        ("judge", 502, "judge_failed", "judge", "the judge is silent"),
        ("nameless", 500, "environment_failed", "arena", "the disk is full"),
    ],
)
async def test_tool_failure_reaches_the_agents_caller_with_cause(
    caller, way, how, status, failure_class, server, detail
):
    reply = await caller.post("agent", "/run", json={"responses_create_params": {"input": f"{how} {way}"}})
    assert await problem_of(reply) == (status, failure_class, server, detail)


@pytest.mark.parametrize(
    ("status", "expected"), [(422, (422, "invalid_task")), (413, (413, "invalid_task")), (404, (500, "agent_failed"))]
)
async def test_unhandled_rejection_by_the_model_keeps_its_status(caller, status, expected):
    reply = await caller.post("agent", "/run", json={"responses_create_params": {"input": f"model {status}"}})
    found = await problem_of(reply)
    assert (found[:2], "tool_choice names no tool" in found[3]) == (expected, True)


async def test_unhandled_rejection_is_the_agents_failure(caller):
    reply = await caller.post("agent", "/run", json={"responses_create_params": {"input": "refused raised"}})
    status, failure_class, server, detail = await problem_of(reply)
    assert (status, failure_class, server) == (500, "agent_failed", "agent")
    assert "/fail: answered 409 Conflict" in detail
    assert "not now" in detail


async def test_unreachable_server_is_named(caller):
    reply = await caller.post("agent", "/run", json={"responses_create_params": {"input": "nowhere raised"}})
    _, failure_class, server, detail = await problem_of(reply)
    assert (failure_class, server) == ("agent_failed", "agent")
    assert "'nowhere'" in detail


async def test_agents_own_bug_is_its_failure(caller):
    reply = await caller.post("agent", "/v1/responses", json={"input": "hi"})
    assert (await problem_of(reply))[1:3] == ("agent_failed", "agent")


def app_with_faults(otherwise: type = EnvironmentFailed) -> FastAPI:
    app = make_server(Arena, name="arena").setup_webserver()
    app.add_middleware(CallMiddleware, failures=Failures("arena", otherwise))
    return app


@pytest.fixture
def client():
    return TestClient(app_with_faults())


@each_case("otherwise", [EnvironmentFailed, AgentFailed, ModelFailed])
def test_bug_is_a_failure_of_the_servers_tier(otherwise):
    problem = TestClient(app_with_faults(otherwise)).post("/fail", json={"how": "bug"}).json()
    assert problem["failure_class"] == otherwise.failure_class


@each_case(
    ("answer", "message"),
    [
        (b"no bench", "ClientResponseError: 500, message='', url='None' (no bench); its log has the traceback"),
        (b"", "ClientResponseError: 500, message='', url='None'; its log has the traceback"),
        (Problem.of_error(JudgeFailed("it is silent", server="judge")).model_dump_json().encode(), "it is silent"),
    ],
)
def test_inner_servers_response_is_reported_as_the_cause(answer, message):
    error = aiohttp.ClientResponseError(SimpleNamespace(real_url=None), (), status=500)
    error.response_content = answer
    failure = Failures("arena", EnvironmentFailed).failure(error, {"path": "/fail"})
    assert str(failure).endswith(message)
    assert failure.server == ("judge" if message == "it is silent" else "arena")


def test_traceback_of_a_bug_is_logged(client, caplog):
    with caplog.at_level(logging.ERROR):
        client.post("/fail", json={"how": "bug"}, headers={"x-nemo-gym-rollout": "r-1"})
    assert "/fail failed (rollout r-1)" in caplog.text
    assert "Traceback" in caplog.text
    assert "in fail" in caplog.text


@each_case("path", ["/raw", "/fail", "/verify", "/mcp"])
async def test_caller_that_hangs_up_is_not_an_error(path, caplog):
    caplog.clear()
    server = make_server(Arena, name="arena", expose_tools_over_mcp=True)
    async with on_a_port(server) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        sent = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nabc"
        with caplog.at_level(logging.DEBUG, "nemo_gym.web.failures"):
            writer.write(sent.encode())
            await _until(lambda: context_of(server).telemetry.in_flight == 1)
            writer.transport.abort()
            await _until(lambda: context_of(server).telemetry.in_flight == 0)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def _until(condition):
    async with asyncio.timeout(100.0):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.005)


@each_case(
    ("failure", "tier"),
    [(Overloaded("busy"), "environment"), (ServerLost("gone", tier="model"), "model"),
     (ServerLost("gone", server="policy"), "agent"), (InvalidTask("no"), "environment")],
)  # fmt: skip
def test_failure_is_of_the_server_that_raised_it(failure, tier):
    assert Failures("arena", EnvironmentFailed).failure(failure, {"path": "/verify"}).tier == tier


def test_long_cause_is_shortened(client):
    detail = client.post("/fail", json={"how": "long"}).json()["detail"]
    assert len(detail) < 800
    assert "(5012 characters)" in detail


def test_invalid_response_of_handler_is_an_environment_failure(client):
    answer = client.post("/mistyped")
    assert (answer.status_code, answer.json()["failure_class"]) == (500, "environment_failed")
    assert "number" in answer.json()["detail"]


def test_failure_keeps_the_session(client):
    before = client.post("/fail", json={"how": "refused"}).cookies["Arena___arena"]
    assert client.post("/fail", json={"how": "bug"}).cookies["Arena___arena"] == before


def test_client_errors_stay_unchanged(client):
    assert client.post("/fail", json={"how": "refused"}).json() == {"detail": "not now"}
    assert client.post("/verify", json={}).status_code == 422
    assert client.post("/no_such_route").status_code == 404


def test_failure_after_the_response_began_is_raised(client):
    with pytest.raises(RuntimeError, match="second"):
        client.post("/breaks_off")

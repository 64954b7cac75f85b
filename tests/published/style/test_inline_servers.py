"""Servers in the style of the published collection run unchanged, even with `@tool` methods."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, MagicMock
from uuid import UUID

import orjson
import pytest
from fastapi import Body, FastAPI, HTTPException, Request, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym import tool
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient, get_response_json, raise_for_status

pytestmark = pytest.mark.slow

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": None}],
}
RESPONSE = {
    "id": "resp_1",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [MESSAGE],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ROW = {"responses_create_params": {"input": "hi"}, "expected": "hello"}
ADDRESS: dict[str, Any] = {"host": "0.0.0.0", "port": 8080, "entrypoint": "", "name": ""}


class LedgerConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    limit: int = 3


class EntryRequest(BaseModel):
    amount: int = Field(ge=1)


class EntryResponse(BaseModel):
    total: int


class RunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class SeedRequest(RunRequest, BaseSeedSessionRequest):
    start: int = 0


class LedgerVerifyRequest(RunRequest, BaseVerifyRequest):
    expected: str


class LedgerVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    total: int
    opinion: str | None = None


class LedgerServer(SimpleResourcesServer):
    config: LedgerConfig
    totals: dict[str, int] = Field(default_factory=dict)
    events: list[str] = Field(default_factory=list)
    _gate: asyncio.Semaphore = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._gate = asyncio.Semaphore(self.config.limit)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        app.post("/peek")(self.peek)
        app.post("/{path}")(self.anything_else)

        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app: FastAPI):
            self.events.append("opened")
            async with inner(app):
                yield
            self.events.append("closed")

        app.router.lifespan_context = lifespan
        app.router.on_startup.append(self.started)
        app.router.on_shutdown.append(self.stopped)

        @app.middleware("http")
        async def mark(request: Request, call_next: Any) -> Response:
            response = await call_next(request)
            response.headers["x-marked"] = "yes"
            return response

        return app

    async def startup(self) -> None:
        self.events.append("startup")

    async def started(self) -> None:
        self.events.append("on_startup")

    def stopped(self) -> None:
        self.events.append("on_shutdown")

    async def aclose(self) -> None:
        self.events.append("aclose")

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        self.totals[request.session[SESSION_ID_KEY]] = body.start
        return BaseSeedSessionResponse()

    async def add(self, request: Request, body: EntryRequest) -> EntryResponse:
        session_id = request.session[SESSION_ID_KEY]
        if session_id not in self.totals:
            raise HTTPException(status_code=400, detail="Session not initialized. Please call seed_session first.")
        async with self._gate:
            self.totals[session_id] += body.amount
        return EntryResponse(total=self.totals[session_id])

    async def peek(self, request: Request) -> dict[str, Any]:
        return {"body": orjson.loads(await request.body() or b"{}"), "total": self.totals}

    async def anything_else(self, path: str, request: Request) -> str:
        return f"no such tool: {path} {sorted(await request.json())}"

    @tool
    async def double(self, request: Request, by: int = 2) -> dict[str, int]:
        """Multiply the total: the new style next to the old one."""
        session_id = request.session[SESSION_ID_KEY]
        self.totals[session_id] *= by
        return {"total": self.totals[session_id]}

    async def verify(self, request: Request, body: LedgerVerifyRequest = Body()) -> LedgerVerifyResponse:
        opinion = None
        if body.model_extra and body.model_extra.get("ask_judge"):
            response = await self.server_client.post(
                server_name=self.config.judge_model_server.name,
                url_path="/v1/responses",
                json=NeMoGymResponseCreateParamsNonStreaming(input="well?"),
                cookies=request.cookies,
            )
            await raise_for_status(response)
            opinion = NeMoGymResponse.model_validate(await get_response_json(response)).output_text
        return LedgerVerifyResponse(
            **body.model_dump(),
            reward=float(body.response.output_text == body.expected),
            total=self.totals.pop(request.session[SESSION_ID_KEY], 0),
            opinion=opinion,
        )


@pytest.fixture
def server() -> LedgerServer:
    config = LedgerConfig(judge_model_server={"type": "responses_api_models", "name": "judge"}, **ADDRESS)
    return LedgerServer(config=config, server_client=MagicMock(spec=ServerClient))


@pytest.fixture
def client(server: LedgerServer):
    with TestClient(server.setup_webserver()) as client:
        yield client


def test_rollout_of_a_published_server_runs(client, server):
    assert client.post("/seed_session", json={**ROW, "start": 1}).json() == {}
    assert client.post("/add", json={"amount": 4}).json() == {"total": 5}
    assert client.post("/double", json={}).json() == {"total": 10}
    graded = client.post("/verify", json={**ROW, "response": RESPONSE, "start": 1}).json()
    assert (graded["reward"], graded["total"], graded["start"], graded["expected"]) == (1.0, 10, 1, "hello")
    assert server.totals == {}


def test_callers_have_separate_sessions(server):
    app = server.setup_webserver()
    callers = [TestClient(app), TestClient(app)]
    for start, caller in enumerate(callers):
        caller.post("/seed_session", json={**ROW, "start": start * 100})
    assert [caller.post("/add", json={"amount": 1}).json()["total"] for caller in callers] == [1, 101]


def test_http_exceptions_and_invalid_bodies_match_fastapi(client):
    refused = client.post("/add", json={"amount": 1})
    assert (refused.status_code, refused.json()["detail"][:23]) == (400, "Session not initialized")
    assert client.post("/add", json={"amount": 0}).status_code == 422


def test_catch_all_route_receives_the_remaining_paths(client):
    assert client.post("/unheard_of", json={"b": 1, "a": 2}).json() == "no such tool: unheard_of ['a', 'b']"
    assert [each["name"] for each in client.get("/tools").json()] == ["double"]
    assert client.post("/close_session").json() == {"closed": False}


def test_handler_may_take_only_the_request(client):
    assert client.post("/peek", content=b'{"a": 1}').json() == {"body": {"a": 1}, "total": {}}


def test_middleware_sees_every_response(client):
    assert client.post("/peek").headers["x-marked"] == "yes"
    assert client.post("/add", json={}).headers["x-marked"] == "yes"


def test_every_lifespan_hook_is_called_in_order(server):
    with TestClient(server.setup_webserver()):
        assert server.events == ["opened", "startup", "on_startup"]
    assert server.events == ["opened", "startup", "on_startup", "on_shutdown", "aclose", "closed"]


def test_mocked_client_can_replace_the_judge(client, server):
    answer = AsyncMock()
    answer.ok = True
    answer.read.return_value = orjson.dumps(RESPONSE)
    server.server_client.post.return_value = answer
    graded = client.post("/verify", json={**ROW, "response": RESPONSE, "ask_judge": True}).json()
    assert graded["opinion"] == "hello"
    assert server.server_client.post.call_args.kwargs["server_name"] == "judge"


async def test_verify_can_be_called_as_a_method(server):
    request = MagicMock(spec=Request, session={SESSION_ID_KEY: "s"})
    body = LedgerVerifyRequest.model_validate({**ROW, "response": RESPONSE})
    assert (await server.verify(request, body)).reward == 1.0


def test_server_may_be_constructed_without_validation():
    server = LedgerServer.model_construct(config=LedgerConfig.model_construct(name="x", limit=1), server_client=None)
    assert server._gate._value == 1
    assert TestClient(server.setup_webserver()).post("/seed_session", json=ROW).status_code == 200


class Replacing(LedgerServer):
    """Replaces a route of the base class."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") != "/verify"]
        app.router.routes.insert(0, *self._own_routes())
        return app

    def _own_routes(self) -> list[Any]:
        own = FastAPI()
        own.post("/verify")(self.verify_differently)
        return [route for route in own.router.routes if getattr(route, "path", "") == "/verify"]

    async def verify_differently(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "reward": 0.125}


def test_route_of_the_base_class_may_be_replaced(server):
    replacing = Replacing(config=server.config, server_client=server.server_client)
    answer = TestClient(replacing.setup_webserver()).post("/verify", json={"x": 1})
    assert answer.json() == {"x": 1, "reward": 0.125}


class EchoAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef


class EchoAgent(SimpleResponsesAPIAgent):
    config: EchoAgentConfig
    model_config = ConfigDict(arbitrary_types_allowed=True)
    semaphore: asyncio.Semaphore = Field(default_factory=lambda: asyncio.Semaphore(2))

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        reply = await self.server_client.post(
            server_name=self.config.model_server.name,
            url_path=self.url_path_for_request("/v1/responses", request),
            json=body.model_copy(update={"temperature": 0.5}),
            cookies=request.cookies,
        )
        response.set_cookie("seen", "yes")
        return NeMoGymResponse.model_validate(await get_response_json(reply))

    async def run(self, body: RunRequest = Body()) -> LedgerVerifyResponse:
        return LedgerVerifyResponse(**body.model_dump(), response=RESPONSE, reward=1.0, total=0)


def test_published_agent_runs():
    config = EchoAgentConfig(model_server={"type": "responses_api_models", "name": "policy"}, **ADDRESS)
    agent = EchoAgent(config=config, server_client=MagicMock(spec=ServerClient))
    answer = AsyncMock()
    answer.read.return_value = orjson.dumps(RESPONSE)
    agent.server_client.post.return_value = answer
    client = TestClient(agent.setup_webserver())

    response = client.post("/v1/responses", json={"input": "hi"})
    assert (response.json()["output"], response.cookies["seen"]) == ([MESSAGE], "yes")
    sent = agent.server_client.post.call_args.kwargs["json"]
    assert sent.model_dump(exclude_unset=True) == {"input": "hi", "temperature": 0.5}
    assert client.post("/run", json=ROW).json()["reward"] == 1.0


class ConstantModel(SimpleResponsesAPIModel):
    config: BaseResponsesAPIModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        return NeMoGymResponse.model_validate(RESPONSE)

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        message = {"role": "assistant", "content": request.session[SESSION_ID_KEY]}
        return NeMoGymChatCompletion.model_validate(
            {
                "id": "c",
                "created": 0,
                "model": "m",
                "object": "chat.completion",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            }
        )


def test_published_model_server_answers_both_dialects():
    config = BaseResponsesAPIModelConfig(**ADDRESS)
    client = TestClient(ConstantModel(config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver())
    assert client.post("/v1/responses", json={"input": "hi"}).json()["output"] == [MESSAGE]
    chat = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]}).json()
    assert UUID(chat["choices"][0]["message"]["content"])

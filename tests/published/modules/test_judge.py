"""`nemo_gym.judge`, as used and tested by folders with their own judge."""

from __future__ import annotations

import json
from unittest.mock import AsyncMock, MagicMock

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import ConfigDict
from starlette.responses import JSONResponse

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.errors import JudgeFailed
from nemo_gym.judge import JudgeError, call_judge, judge_failsafe, reraise_judge_errors
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import FakeModel, make_server, reply, run
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.each_case import each_case

RESPONSE = reply("yes").model_dump(mode="json")
COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 0, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
}  # fmt: skip
ROW = {"responses_create_params": {"input": "Q?"}, "response": RESPONSE, "expected": "Paris", "own": {"kept": [1]}}
FAILED = {"_ng_failure_class": "judge_failed", "reward": 0.0}


def answering(body: object, *, ok: bool = True) -> MagicMock:
    """Return a client mock as in tests of published folders: replies have `.ok`, `.cookies` and `.read()`."""
    response = MagicMock(spec=["ok", "cookies", "read"])
    response.ok = ok
    response.read = AsyncMock(return_value=body if isinstance(body, bytes) else json.dumps(body).encode())
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(return_value=response)
    return client


def raising(error: Exception) -> MagicMock:
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(side_effect=error)
    return client


async def test_judge_reply_has_the_requested_type():
    client, params = answering(RESPONSE), NeMoGymResponseCreateParamsNonStreaming(input="Is it Paris?")
    answer = await call_judge(
        client, server_name="judge", url_path="/v1/responses", json=params, response_model=NeMoGymResponse
    )
    assert answer.output_text == "yes"
    client.post.assert_awaited_once_with(server_name="judge", url_path="/v1/responses", json=params)


async def test_judge_can_be_called_over_chat_completions():
    answer = await call_judge(
        answering(COMPLETION),
        server_name="judge",
        url_path="/v1/chat/completions",
        json={"messages": []},
        response_model=NeMoGymChatCompletion,
    )
    assert answer.choices[0].message.content == "yes"


FAILURES = {
    "the connection": (raising(ConnectionResetError("reset by peer")), "ConnectionResetError: reset by peer"),
    "a time limit": (raising(TimeoutError()), "TimeoutError"),
    "a status": (answering({"detail": "overloaded"}, ok=False), "overloaded"),
    "no JSON": (answering(b"<html>"), "JSONDecodeError"),
    "another shape": (answering({"id": "r"}), "did not answer with a Response: "),
}


@each_case(("client", "expected"), FAILURES.values())
async def test_any_failed_call_is_a_judge_failure(client, expected):
    with pytest.raises(JudgeError, match=expected) as failure:
        await call_judge(
            client, server_name="judge", url_path="/v1/responses", json={"input": "?"}, response_model=NeMoGymResponse
        )
    assert "the judge 'judge'" in str(failure.value)


async def test_mock_reply_that_only_raises_reports_its_reason():
    refusal = ConnectionRefusedError("503, try again")
    response = MagicMock(ok=False)
    response.content.read = AsyncMock(return_value=b"busy")
    response.raise_for_status = MagicMock(side_effect=refusal)
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(return_value=response)
    with pytest.raises(JudgeError, match="503, try again") as failure:
        await call_judge(
            client, server_name="judge", url_path="/v1/responses", json={"input": "?"}, response_model=NeMoGymResponse
        )
    assert failure.value.__cause__ is refusal
    assert refusal.response_content == b"busy"


async def test_judge_error_is_the_public_error_class():
    error = JudgeError("no verdict")
    assert isinstance(error, JudgeFailed)
    assert (str(error), error.failure_class) == ("no verdict", "judge_failed")


async def fails(error: Exception | None) -> str:
    if error:
        raise error
    return "[[A]]"


async def test_errors_of_custom_calls_become_judge_failures():
    assert await reraise_judge_errors(fails(None)) == "[[A]]"
    with pytest.raises(JudgeError, match="ValueError: no label") as failure:
        await reraise_judge_errors(fails(ValueError("no label")))
    assert isinstance(failure.value.__cause__, ValueError)
    with pytest.raises(JudgeError, match=r"^as it is$"):
        await reraise_judge_errors(fails(JudgeError("as it is")))


class JudgedConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef


class JudgedVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")
    expected: str


class JudgedVerifyResponse(BaseVerifyResponse):
    expected: str


class JudgedServer(SimpleResourcesServer):
    """A server in the published style."""

    config: JudgedConfig

    async def verify(self, body: JudgedVerifyRequest) -> JudgedVerifyResponse:
        answer = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=NeMoGymResponseCreateParamsNonStreaming(input=body.expected),
            response_model=NeMoGymResponse,
        )
        return JudgedVerifyResponse(**body.model_dump(), reward=float(answer.output_text == "yes"))


class OwnRoute(JudgedServer):
    """A server with its own routes, wrapped by the decorator."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/verify_again")(judge_failsafe(self.verify))
        app.post("/verify_by_request")(judge_failsafe(self.verify_by_request))
        return app

    async def verify_by_request(self, request: Request, body: JudgedVerifyRequest) -> JudgedVerifyResponse:
        assert request.session["session_id"]
        return await self.verify(body)


def config(**settings: object) -> JudgedConfig:
    reference = {"type": "responses_api_models", "name": "judge"}
    return JudgedConfig(host="0.0.0.0", port=8080, entrypoint="", name="", judge_model_server=reference, **settings)


def posted(client: MagicMock, path: str, server: type[JudgedServer] = OwnRoute) -> dict[str, object]:
    app = server(config=config(), server_client=client).setup_webserver()
    answer = TestClient(app).post(path, json=ROW)
    assert answer.status_code == 200
    return answer.json()


PATHS = ["/verify", "/verify_again", "/verify_by_request"]


@each_case("path", PATHS)
@each_case(("verdict", "reward"), [("yes", 1.0), ("no", 0.0)])
def test_a_verdict_is_graded(path, verdict, reward):
    row = posted(answering(reply(verdict).model_dump(mode="json")), path)
    assert (row["reward"], row["expected"]) == (reward, "Paris")
    assert "_ng_failure_class" not in row


@each_case("path", PATHS)
def test_failed_judge_is_recorded_in_the_row(path):
    row = posted(raising(RuntimeError("out of order")), path)
    assert row.items() >= FAILED.items()
    assert "out of order" in row["_ng_failure_judge_error"]
    assert (row["expected"], row["own"]) == ("Paris", {"kept": [1]})
    assert row["response"]["output"][0]["content"][0]["text"] == "yes"
    assert row["responses_create_params"]["input"] == "Q?"


async def test_answer_of_the_decorator_is_a_json_response():
    async def verify(body: JudgedVerifyRequest) -> JudgedVerifyResponse:
        raise JudgeError("out of order")

    answer = await judge_failsafe(verify)(JudgedVerifyRequest.model_validate(ROW))
    assert isinstance(answer, JSONResponse)
    assert (answer.status_code, answer.media_type) == (200, "application/json")
    assert json.loads(answer.body).items() >= FAILED.items()


def test_other_errors_are_not_judge_failures():
    class Buggy(JudgedServer):
        async def verify(self, body: JudgedVerifyRequest) -> JudgedVerifyResponse:
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        posted(answering(RESPONSE), "/verify", Buggy)


async def test_judge_failure_fails_an_agent_rollout():
    reference = {"type": "responses_api_models", "name": "silent"}
    judged = make_server(JudgedServer, name="judged", judge_model_server=reference, entrypoint="")
    agent = make_server(
        SimpleAgent,
        model=FakeModel(["Paris"]),
        servers=[judged],
        resources_server={"type": "resources_servers", "name": "judged"},
    )
    with pytest.raises(JudgeFailed, match="silent"):
        await run(agent, expected="Paris")

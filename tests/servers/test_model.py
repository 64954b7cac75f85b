"""Signatures of a model server's methods, and its routes."""

from fastapi import Request
from fastapi.testclient import TestClient

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResponsesAPIModelConfig,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
    current_rollout_id,
)
from nemo_gym.testing import make_server, reply
from tests.each_case import each_case


def completion(text: str) -> NeMoGymChatCompletion:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return NeMoGymChatCompletion.model_validate(
        {"id": "c", "created": 0, "model": "m", "object": "chat.completion", "choices": [choice]}
    )


class BodyOnly(SimpleResponsesAPIModel):
    config: BaseResponsesAPIModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return reply(f"{body.input} {current_rollout_id()}")

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        return completion(f"{body.messages[-1]['content']} {current_rollout_id()}")


class RequestFirst(BodyOnly):
    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        assert request.session[SESSION_ID_KEY]
        return await super().responses(body)

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymChatCompletion:
        assert request.session[SESSION_ID_KEY]
        return await super().chat_completions(body)


@each_case("cls", [BodyOnly, RequestFirst])
@each_case(
    ("prefix", "rollout_id"), [("", "None"), ("/ng-rollout/r1", "r1"), ("/ng-rollout/r1/training-token-capture", "r1")]
)
def test_both_routes_answer_and_know_the_rollout(cls, prefix, rollout_id):
    client = TestClient(make_server(cls).setup_webserver())
    answer = client.post(f"{prefix}/v1/responses", json={"input": "hi"}).json()
    assert answer["output"][0]["content"][0]["text"] == f"hi {rollout_id}"
    messages = [{"role": "user", "content": "hi"}]
    answer = client.post(f"{prefix}/v1/chat/completions", json={"messages": messages}).json()
    assert answer["choices"][0]["message"]["content"] == f"hi {rollout_id}"


def test_request_with_unknown_field_is_rejected():
    client = TestClient(make_server(BodyOnly).setup_webserver())
    assert client.post("/v1/responses", json={"input": "hi", "tempreature": 1}).status_code == 422


def test_model_server_has_only_model_routes():
    client = TestClient(make_server(BodyOnly).setup_webserver())
    for path in ("/verify", "/run", "/seed_session"):
        assert client.post(path, json={}).status_code == 404

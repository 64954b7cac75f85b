"""A model server whose calls are recorded."""

from typing import Any, ClassVar

from fastapi import HTTPException
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ServerClient,
    SimpleResponsesAPIModel,
    current_rollout_id,
)
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import EndpointError, ModelFailed
from nemo_gym.testing import call, reply

RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"
SAID = [{"role": "user", "content": "hi"}]
BODIES = {
    RESPONSES: {"input": SAID, "model": "m"},
    CHAT: {"messages": SAID, "model": "m"},
    MESSAGES: {"messages": SAID, "model": "m", "max_tokens": 9},
}


class Model(SimpleResponsesAPIModel):
    """A model server that answers with the current rollout id and a tool call, or as the request's `model` asks."""

    config: BaseResponsesAPIModelConfig
    tokens: ClassVar[dict[str, Any]] = {}
    """The tokens of each answer."""

    def response(self) -> NeMoGymResponse:
        answer = reply(f"for {current_rollout_id()}", call("look", at="it")).model_dump()
        answer["output"][-1] |= self.tokens
        usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        return NeMoGymResponse.model_validate({**answer, "usage": usage})

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        self._fail(body.model)
        return reply("") if body.model == "cut-off" else self.response()

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        self._fail(body.model)
        asked = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
        text = f"for {current_rollout_id()}"
        message = {"role": "assistant", "content": text, "tool_calls": [asked], **self.tokens}
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        completion = {"id": "c", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        return NeMoGymChatCompletion.model_validate(completion)

    def _fail(self, model: str | None) -> None:
        if model == "refuse":
            raise HTTPException(429, "later")
        if model == "fail":
            raise ModelFailed("no") from EndpointError("denied", status=401)
        if model == "wait":
            raise TimeoutError


def model_server(kind: type[Model] = Model, **config: object) -> Model:
    address = BaseServerConfig(host="127.0.0.1", port=0)
    client = ServerClient(head_server_config=address, global_config_dict=OmegaConf.create(config))
    settings = BaseResponsesAPIModelConfig(host="127.0.0.1", port=0, entrypoint="app.py", name="policy")
    return kind(config=settings, server_client=client)


def client_of(kind: type[Model] = Model, *, raises: bool = False, **config: object) -> TestClient:
    return TestClient(model_server(kind, **config).setup_webserver(), raise_server_exceptions=raises)

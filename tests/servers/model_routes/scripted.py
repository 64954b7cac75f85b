"""A model server with a fixed answer, and clients of it over real HTTP."""

import json
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
from omegaconf import DictConfig
from pydantic import Field

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    BaseServerConfig,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ServerClient,
    SimpleResponsesAPIModel,
)
from nemo_gym.testing import on_a_port

HELLO = [{"role": "user", "content": "Hello"}]
GREETING = {"model": "m", "max_tokens": 64, "messages": HELLO}
COMPLETION_FIELDS = {
    "id": "chatcmpl-1",
    "created": 1700000000,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Hi there"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
COMPLETION = NeMoGymChatCompletion.model_validate(COMPLETION_FIELDS)
NAMESPACE = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "list_orders", "parameters": {"type": "object"}, "defer_loading": True}],
}


class ScriptedModel(SimpleResponsesAPIModel):
    """Returns or raises its fixed answer, and records the requests."""

    config: BaseResponsesAPIModelConfig
    answer: Any
    asked: list[Any] = Field(default_factory=list)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return self._answer(body)

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        return self._answer(body)

    def _answer(self, body):
        self.asked.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def server_of(kind, answer):
    config = BaseResponsesAPIModelConfig(host="127.0.0.1", port=0, entrypoint="app.py", name="policy_model")
    head = BaseServerConfig(host="127.0.0.1", port=0)
    client = ServerClient(head_server_config=head, global_config_dict=DictConfig({}))
    return kind(config=config, server_client=client, answer=answer)


@asynccontextmanager
async def openai_client(server):
    """Yield the openai package's client for the server."""
    async with (
        on_a_port(server) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="dummy_key", max_retries=0) as client,
    ):
        yield client


@asynccontextmanager
async def http_client(server):
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        yield client


def events_in(text):
    """Parse the events of a stream and check that their names match their data."""
    events = []
    for event in text.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events

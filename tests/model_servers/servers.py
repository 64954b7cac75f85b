"""All model servers in front of one endpoint, each with the API that it calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import httpx

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.anthropic_model.app import AnthropicModel
from responses_api_models.azure_openai_model.app import AzureModelServer
from responses_api_models.genrm_model.app import GenRMModel
from responses_api_models.inference_provider.app import InferenceProvider
from responses_api_models.openai_model.app import SimpleModelServer
from responses_api_models.vllm_model.app import VLLMModel
from tests.model_servers.raw_endpoint import RawEndpoint, raw_endpoint

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
KEY = "sk-secret-1"
OF_ENDPOINT = ("base_url", "api_key", "model")
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None}


class Column(NamedTuple):
    """A model server, one of its routes, and the API of the endpoint that this route calls."""

    name: str
    route: str
    api: str


COLUMNS = [
    Column("vllm", RESPONSES, "chat"),
    Column("vllm", CHAT, "chat"),
    Column("vllm_native", RESPONSES, "responses"),
    Column("provider", RESPONSES, "chat"),
    Column("provider", CHAT, "chat"),
    Column("genrm", RESPONSES, "chat"),
    Column("openai", RESPONSES, "responses"),
    Column("openai", CHAT, "chat"),
    Column("azure", RESPONSES, "responses"),
    Column("azure", CHAT, "chat"),
    Column("anthropic", RESPONSES, "messages"),
    Column("anthropic", CHAT, "messages"),
]


class Outcome(NamedTuple):
    """The outcome of a call: the text, the calls as `(name, arguments)`, the ending, the total of tokens."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    ending: str = "completed"
    tokens: int | None = None
    problem: str = ""
    ids: tuple[str, ...] = ()


class Servers(NamedTuple):
    """The addresses of the servers by name, and the endpoint behind all of them."""

    urls: dict[str, str]
    endpoint: RawEndpoint
    client: httpx.AsyncClient

    async def ask(self, column: Column, **asked: object) -> Outcome:
        """Send a greeting to a column's route and return the outcome."""
        given = {"input": "Hello"} if column.route == RESPONSES else {"messages": [{"role": "user", "content": "Hi"}]}
        tool = TOOL if column.route == RESPONSES else {"type": "function", "function": {"name": "look"}}
        answer = await self.client.post(
            self.urls[column.name] + column.route, json={"tools": [tool], **given, **asked}
        )
        body = answer.json()
        if answer.status_code != 200:
            return Outcome(ending=body.get("failure_class") or str(body), problem=body.get("detail", ""))
        return outcome_of_response(body) if column.route == RESPONSES else outcome_of_completion(body)


def outcome_of_response(body: dict) -> Outcome:
    contents = [item["content"] for item in body["output"] if item["type"] == "message"]
    texts = [each if isinstance(each, str) else "".join(part.get("text", "") for part in each) for each in contents]
    calls = [item for item in body["output"] if item["type"] == "function_call"]
    details = body.get("incomplete_details")
    return Outcome(
        "".join(texts),
        tuple((call["name"], call["arguments"]) for call in calls),
        (details or {}).get("reason") or "completed",
        (body.get("usage") or {}).get("total_tokens"),
        ids=tuple(call["call_id"] for call in calls),
    )


def outcome_of_completion(body: dict) -> Outcome:
    (choice,) = body["choices"]
    calls = choice["message"].get("tool_calls") or []
    endings = {"length": "max_output_tokens", "content_filter": "content_filter"}
    return Outcome(
        (choice["message"].get("content") or "").rpartition("</think>")[2],
        tuple((call["function"]["name"], call["function"]["arguments"]) for call in calls),
        endings.get(choice["finish_reason"], "completed"),
        (body.get("usage") or {}).get("total_tokens"),
        ids=tuple(call["id"] for call in calls),
    )


@asynccontextmanager
async def model_servers(**settings: object) -> AsyncIterator[Servers]:
    """Serve all model servers in front of one endpoint."""
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(raw_endpoint())
        common = {"model": "m", "base_url": endpoint.url, "api_key": KEY, "request_tries": 1, **settings}
        openai = {f"openai_{name}" if name in OF_ENDPOINT else name: value for name, value in common.items()}
        made = {
            "vllm": make_server(VLLMModel, **common),
            "vllm_native": make_server(VLLMModel, **common, uses_responses_api=True),
            "provider": make_server(InferenceProvider, **common, provider=None),
            "genrm": make_server(GenRMModel, **common),
            "openai": make_server(SimpleModelServer, **openai),
            "azure": make_server(AzureModelServer, **openai),
            "anthropic": make_server(AnthropicModel, **common, stream=False),
        }
        urls = {name: await stack.enter_async_context(on_a_port(server)) for name, server in made.items()}
        client = await stack.enter_async_context(httpx.AsyncClient(verify=False, timeout=60))
        yield Servers(urls, endpoint, client)


USAGE = {
    "chat": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    "responses": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    "messages": {"input_tokens": 3, "output_tokens": 4},
}


def written(answer: object) -> bytes:
    return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def chat(message: dict | None = None, *, choice: dict | None = None, **fields: object) -> dict:
    """Return a completion with a greeting, or with the given message or fields."""
    said = {"role": "assistant", "content": "Hi", **(message or {})}
    one = {"index": 0, "message": said, "finish_reason": "stop", "logprobs": None, **(choice or {})}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [one], "usage": USAGE["chat"], **fields}


def said(text: object = "Hi", **fields: object) -> dict:
    """Return an output message."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part], **fields}


def response(*items: dict, **fields: object) -> dict:
    """Return a response with a greeting, or with the given items."""
    head = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**head, "output": list(items) or [said()], "usage": USAGE["responses"], **fields}


def message(*blocks: dict, **fields: object) -> dict:
    """Return an answer of the Messages API with a greeting, or with the given blocks."""
    head = {"id": "a1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    content = list(blocks) or [{"type": "text", "text": "Hi"}]
    return {**head, "content": content, "usage": USAGE["messages"], **fields}

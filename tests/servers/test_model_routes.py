"""The routes of a model server, over real HTTP: strict and lenient requests, whole answers and streams."""

import json
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import openai
import pytest
from fastapi import Body, HTTPException, Request
from omegaconf import DictConfig
from openai.types.responses import Response as OpenAIResponse
from pydantic import Field

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    BaseServerConfig,
    DataError,
    ModelFailed,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ServerClient,
    SimpleResponsesAPIModel,
)
from nemo_gym.testing import call, on_a_port, reply

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
    """Gives the answer it was made with, or raises it, and remembers what it was asked."""

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
    """The openai package's client of the server."""
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
    """The events of a stream, each told by its name and its data alike."""
    events = []
    for event in text.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


# Responses


async def test_a_whole_response_is_answered_as_the_author_gave_it():
    server = server_of(ScriptedModel, reply("Hi there"))
    async with openai_client(server) as client:
        response = await client.responses.create(model="m", input="Hello")
    assert response.output_text == "Hi there"
    assert server.asked[0].input == "Hello"


@pytest.mark.parametrize("body", [{"input": "Hello", "spam": 1}, {"input": "Hello", "stream": "yes"}, {"tools": []}])
async def test_a_request_without_streaming_is_read_strictly(body):
    server = server_of(ScriptedModel, reply("Hi there"))
    async with http_client(server) as client:
        answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 422
    assert server.asked == []


async def test_the_place_of_a_mistake_is_told_as_the_client_wrote_it():
    async with http_client(server_of(ScriptedModel, reply("Hi there"))) as client:
        answer = await client.post("/v1/responses", json={"input": "Hello", "temperature": "hot"})
    assert answer.json()["detail"][0]["loc"] == ["body", "temperature"]


async def test_a_streamed_response_is_made_of_its_items():
    server = server_of(ScriptedModel, reply(call("get_weather", city="Oslo"), "It is cold."))
    async with openai_client(server) as client:
        stream = await client.responses.create(model="m", input="Hello", stream=True)
        events = [event async for event in stream]
    assert [event.type for event in events] == [
        "response.created",
        "response.output_item.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == [0, 1, 2, 3]
    assert (events[0].response.status, events[0].response.output) == ("in_progress", [])
    assert [(event.output_index, event.item.type) for event in events[1:3]] == [(0, "function_call"), (1, "message")]
    assert events[3].response.output_text == "It is cold."
    assert events[0].response.id == events[3].response.id


async def test_the_openai_package_gathers_a_stream_into_the_response():
    server = server_of(ScriptedModel, reply("Hi there"))
    async with openai_client(server) as client, client.responses.stream(model="m", input="Hello") as stream:
        response = await stream.get_final_response()
    assert isinstance(response, OpenAIResponse)
    assert response.output_text == "Hi there"


async def test_the_author_sees_nothing_of_the_streaming():
    server = server_of(ScriptedModel, reply("Hi there"))
    body = {"input": HELLO, "stream": True, "stream_options": {"include_obfuscation": False}, "temperature": 0.5}
    async with http_client(server) as client:
        answer = await client.post("/v1/responses", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert server.asked[0].model_fields_set == {"input", "temperature"}
    assert type(server.asked[0]) is NeMoGymResponseCreateParamsNonStreaming


async def test_a_streaming_request_is_read_leniently():
    server = server_of(ScriptedModel, reply("Hi there"))
    extra = {"client_metadata": {"x": "y"}, "tools": [NAMESPACE]}
    async with openai_client(server) as client:
        stream = await client.responses.create(
            model="m", input=[{"role": "developer", "content": "Be brief."}, *HELLO], stream=True, extra_body=extra
        )
        await stream.close()
    (asked,) = server.asked
    assert asked.instructions == "Be brief."
    assert [item.content for item in asked.input] == ["Hello"]
    assert asked.tools == [{"type": "function", "name": "crm__list_orders", "parameters": {"type": "object"}}]


async def test_a_called_function_goes_by_the_name_that_the_client_gave_it():
    server = server_of(ScriptedModel, reply(call("crm__list_orders", page=2)))
    async with openai_client(server) as client:
        stream = await client.responses.create(model="m", input="Hello", stream=True, tools=[NAMESPACE])
        _, done, completed = [event async for event in stream]
    for called in (done.item, completed.response.output[0]):
        assert (called.namespace, called.name, called.arguments) == ("crm", "list_orders", '{"page":2}')


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModelFailed("the endpoint is asleep"), "the endpoint is asleep"),
        (KeyError("choices"), "/v1/responses raised KeyError('choices'); the model server's log has the traceback"),
    ],
)
async def test_a_failure_ends_the_stream_as_an_event(error, told):
    async with openai_client(server_of(ScriptedModel, error)) as client:
        stream = await client.responses.create(model="m", input="Hello", stream=True)
        created, failed = [event async for event in stream]
    assert (created.type, failed.type) == ("response.created", "response.failed")
    assert created.response.id == failed.response.id
    assert (failed.response.status, failed.response.error.code) == ("failed", "server_error")
    assert failed.response.error.message == told


async def test_a_response_that_failed_at_the_endpoint_ends_its_stream_as_failed():
    failure = {"status": "failed", "error": {"code": "server_error", "message": "overloaded"}, "output": []}
    failed = NeMoGymResponse.model_validate({**reply("").model_dump(), **failure})
    async with openai_client(server_of(ScriptedModel, failed)) as client:
        stream = await client.responses.create(model="m", input="Hello", stream=True)
        events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[0].response.error is None


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_author_refuses_keeps_its_status(stream):
    server = server_of(ScriptedModel, HTTPException(422, detail="no tools, please"))
    async with http_client(server) as client:
        answer = await client.post("/v1/responses", json={"input": "Hello", "stream": stream})
    assert (answer.status_code, answer.json()) == (422, {"detail": "no tools, please"})


async def test_a_malformed_streaming_request_is_refused_before_the_stream_begins():
    server = server_of(ScriptedModel, reply("Hi there"))
    async with http_client(server) as client:
        for body in ({"input": 3}, {"input": [3]}, {"input": "x", "tools": 3}, {"input": "x", "tools": [{"type": 3}]}):
            answer = await client.post("/v1/responses", json={**body, "stream": True})
            assert answer.status_code == 422
    assert server.asked == []


# Chat Completions


async def test_a_whole_completion_is_answered_as_the_author_gave_it():
    server = server_of(ScriptedModel, COMPLETION)
    async with openai_client(server) as client:
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    assert completion.choices[0].message.content == "Hi there"


@pytest.mark.parametrize(("asks", "counts"), [(True, [5]), (False, [])])
async def test_a_streamed_completion_tells_its_usage_only_where_asked(asks, counts):
    server = server_of(ScriptedModel, COMPLETION)
    async with openai_client(server) as client:
        stream = await client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": asks}
        )
        chunks = [chunk async for chunk in stream]
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == counts
    said = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in said) == "Hi there"
    assert [choice.finish_reason for choice in said] == [None, "stop"]
    assert server.asked[0].model_fields_set == {"model", "messages"}


async def test_a_completions_stream_ends_in_done():
    server = server_of(ScriptedModel, COMPLETION)
    async with http_client(server) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": HELLO, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("\n\ndata: [DONE]\n\n")


async def test_the_openai_package_gathers_chunks_into_the_completion():
    called = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    message = {"content": None, "reasoning_content": "Hm.", "tool_calls": [called, {**called, "id": "call_2"}]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    server = server_of(ScriptedModel, NeMoGymChatCompletion.model_validate({**COMPLETION_FIELDS, "choices": [choice]}))
    async with (
        openai_client(server) as client,
        client.chat.completions.stream(model="m", messages=HELLO) as stream,
    ):
        completion = await stream.get_final_completion()
    gathered = completion.choices[0]
    assert gathered.finish_reason == "tool_calls"
    assert gathered.message.reasoning_content == "Hm."
    assert [(each.id, each.function.name, each.function.arguments) for each in gathered.message.tool_calls] == [
        ("call_1", "get_weather", '{"city": "Oslo"}'),
        ("call_2", "get_weather", '{"city": "Oslo"}'),
    ]


async def test_a_completion_that_fails_is_an_error_also_where_a_stream_was_asked_for():
    async with openai_client(server_of(ScriptedModel, ModelFailed("the endpoint is asleep"))) as client:
        with pytest.raises(openai.InternalServerError) as failure:
            await client.chat.completions.create(model="m", messages=HELLO, stream=True)
    assert failure.value.response.json()["detail"] == "the endpoint is asleep"


# Messages


async def test_a_message_is_answered_by_the_method_for_responses():
    server = server_of(ScriptedModel, reply("Let me see.", call("get_weather", city="Oslo")))
    tool = {"name": "get_weather", "input_schema": {"type": "object"}}
    async with http_client(server) as client:
        answer = await client.post(
            "/v1/messages?beta=true", json={**GREETING, "system": "Be brief.", "tools": [tool], "top_k": 5}
        )
    assert answer.status_code == 200
    message = answer.json()
    assert (message["type"], message["role"], message["stop_reason"]) == ("message", "assistant", "tool_use")
    assert message["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_get_weather", "name": "get_weather", "input": {"city": "Oslo"}},
    ]
    (asked,) = server.asked
    assert (asked.instructions, asked.max_output_tokens, asked.tools[0]["name"]) == ("Be brief.", 64, "get_weather")


async def test_a_streamed_message_is_made_of_its_blocks():
    async with http_client(server_of(ScriptedModel, reply("Hi there"))) as client:
        answer = await client.post("/v1/messages", json={**GREETING, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [event["type"] for event in events_in(answer.text)] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "JSON decode error"),
        (b"{}", "messages: Field required"),
        (json.dumps({**GREETING, "messages": [{"role": "user"}]}).encode(), "messages.0.content: Field required"),
        (json.dumps({**GREETING, "tools": [{"type": "bash_20250124", "name": "bash"}]}).encode(), "input_schema"),
    ],
)
async def test_a_malformed_message_is_refused_in_anthropics_words(body, told):
    server = server_of(ScriptedModel, reply("Hi there"))
    async with http_client(server) as client:
        answer = await client.post("/v1/messages", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert told in error["error"]["message"]
    assert server.asked == []


FAILED = NeMoGymResponse.model_validate({**reply("").model_dump(), "error": {"message": "the endpoint is asleep"}})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("answer", "status", "kind", "told"),
    [
        (ModelFailed("the endpoint is asleep"), 502, "api_error", "the endpoint is asleep"),
        (KeyError("choices"), 502, "api_error", "KeyError"),
        (FAILED, 502, "api_error", "the endpoint is asleep"),
        (DataError("no such file"), 400, "invalid_request_error", "no such file"),
        (HTTPException(429, detail="slowly"), 429, "rate_limit_error", "slowly"),
    ],
)
async def test_a_message_that_fails_is_told_in_anthropics_words(answer, status, kind, told, stream):
    async with http_client(server_of(ScriptedModel, answer)) as client:
        failed = await client.post("/v1/messages", json={**GREETING, "stream": stream})
    assert failed.status_code == status
    assert failed.json()["error"]["type"] == kind
    assert told in failed.json()["error"]["message"]


# The author's side


BODY = Body()


class OwnParams(NeMoGymResponseCreateParamsNonStreaming):
    seed: int | None = None


class RequestFirst(ScriptedModel):
    """Takes the request before the body, in a class of its own, and without waiting for anything."""

    def responses(self, request: Request, body: Annotated[OwnParams, Body()]) -> NeMoGymResponse:
        assert request.session["session_id"]
        return self._answer(body)

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = BODY
    ) -> NeMoGymChatCompletion:
        assert request.session["session_id"]
        return self._answer(body)


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("/v1/responses", {"input": "Hello", "seed": 1}, reply("Hi there")),
        ("/v1/responses", {"input": "Hello", "seed": 1, "stream": True}, reply("Hi there")),
        ("/v1/messages", GREETING, reply("Hi there")),
        ("/v1/chat/completions", {"messages": HELLO}, COMPLETION),
        (
            "/v1/chat/completions",
            {"messages": HELLO, "stream": True},
            COMPLETION,
        ),
    ],
)
async def test_a_method_may_take_the_request_and_a_body_of_its_own(path, body, answer):
    server = server_of(RequestFirst, answer)
    async with http_client(server) as client:
        answered = await client.post(path, json=body)
    assert answered.status_code == 200
    assert "Hi there" in answered.text
    expected = NeMoGymChatCompletionCreateParamsNonStreaming if "chat" in path else OwnParams
    assert type(server.asked[0]) is expected
    assert getattr(server.asked[0], "seed", None) == body.get("seed")


class BodyByDefault(ScriptedModel):
    """Says that it takes the body as published servers do."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = BODY) -> NeMoGymResponse:
        return self._answer(body)


async def test_a_body_by_default_may_be_asked_for_as_a_stream_too():
    server = server_of(BodyByDefault, reply("Hi there"))
    async with http_client(server) as client:
        streamed = await client.post("/v1/responses", json={"input": "Hello", "stream": True, "spam": 1})
        refused = await client.post("/v1/responses", json={"input": "Hello", "spam": 1})
    assert [event["type"] for event in events_in(streamed.text)][-1] == "response.completed"
    assert refused.json()["detail"][0]["loc"] == ["body", "spam"]
    assert [asked.input for asked in server.asked] == ["Hello"]


class Untyped(ScriptedModel):
    """Reads requests by itself."""

    async def responses(self, request: Request) -> Any:
        return {"read": await request.json()}

    async def chat_completions(self, body: dict) -> Any:
        return {"read": body}


async def test_a_method_that_reads_by_itself_has_its_route_to_itself():
    async with http_client(server_of(Untyped, None)) as client:
        for path in ("/v1/responses", "/v1/chat/completions"):
            answer = await client.post(path, json={"stream": True, "spam": 1})
            assert answer.json() == {"read": {"stream": True, "spam": 1}}
        assert (await client.post("/v1/messages", json=GREETING)).status_code == 404


class WithRoutesOfItsOwn(ScriptedModel):
    """Replaces one route and adds another."""

    def setup_webserver(self):
        app = super().setup_webserver()
        app.router.routes = [route for route in app.routes if getattr(route, "path", None) != "/v1/messages"]
        app.post("/v1/messages")(self.messages)
        app.get("/v1/models")(self.models)
        return app

    async def messages(self, body: dict) -> dict:
        return {"mine": body}

    async def models(self) -> list[str]:
        return ["m"]


async def test_an_author_may_replace_a_route_and_add_others():
    async with http_client(server_of(WithRoutesOfItsOwn, reply("Hi there"))) as client:
        assert (await client.post("/v1/messages", json={"a": 1})).json() == {"mine": {"a": 1}}
        assert (await client.get("/v1/models")).json() == ["m"]
        assert (await client.post("/v1/responses", json={"input": "Hello"})).status_code == 200


async def test_a_rollouts_prefix_leads_to_every_route():
    async with http_client(server_of(ScriptedModel, reply("Hi there"))) as client:
        answer = await client.post("/ng-rollout/3-1/v1/messages", json=GREETING)
    assert answer.json()["content"][0]["text"] == "Hi there"


def test_the_documentation_shows_the_typed_bodies():
    document = server_of(ScriptedModel, None).setup_webserver().openapi()
    bodies = {
        path: route["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for path, route in document["paths"].items()
    }
    assert bodies == {
        "/v1/responses": "ResponseCreateParams",
        "/v1/chat/completions": "ChatCompletionCreateParams",
        "/v1/messages": "AnthropicCreateParams",
    }
    answers = {path: route["post"]["responses"]["200"]["content"] for path, route in document["paths"].items()}
    assert all(set(content) == {"application/json", "text/event-stream"} for content in answers.values())
    assert answers["/v1/responses"]["application/json"]["schema"]["$ref"].endswith("/Response")

"""`/v1/responses` of a model server: strict and lenient requests, whole answers and streams."""

import pytest
from fastapi import HTTPException
from openai.types.responses import Response as OpenAIResponse

from nemo_gym import ModelFailed, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.testing import call, reply
from tests.each_case import each_case
from tests.servers.model_routes.scripted import HELLO, NAMESPACE, ScriptedModel, http_client, openai_client, server_of


async def test_response_is_returned_as_the_author_made_it():
    server = server_of(ScriptedModel, reply("Hi there"))
    async with openai_client(server) as client:
        response = await client.responses.create(model="m", input="Hello")
    assert response.output_text == "Hi there"
    assert server.asked[0].input == "Hello"


async def test_response_with_tokens_is_complete():
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-0.5, -1.0]}
    plain = reply(call("get_weather", city="Oslo"), "It is cold.").model_dump(mode="json")
    plain["output"][1] |= tokens
    response = NeMoGymResponse.model_validate(plain)
    async with http_client(server_of(ScriptedModel, response)) as client:
        answer = await client.post("/v1/responses", json={"input": "Hello"})
    assert answer.json() == response.model_dump(mode="json")
    assert {name: answer.json()["output"][1][name] for name in tokens} == tokens


@each_case("body", [{"input": "Hello", "spam": 1}, {"input": "Hello", "stream": "yes"}, {"tools": []}])
async def test_request_without_stream_is_validated_strictly(body):
    server = server_of(ScriptedModel, reply("Hi there"))
    async with http_client(server) as client:
        answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 422
    assert server.asked == []


async def test_invalid_field_is_reported_under_its_own_path():
    async with http_client(server_of(ScriptedModel, reply("Hi there"))) as client:
        answer = await client.post("/v1/responses", json={"input": "Hello", "temperature": "hot"})
    assert answer.json()["detail"][0]["loc"] == ["body", "temperature"]


async def test_streamed_response_contains_its_items():
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


async def test_openai_package_assembles_the_response_stream():
    server = server_of(ScriptedModel, reply("Hi there"))
    async with openai_client(server) as client, client.responses.stream(model="m", input="Hello") as stream:
        response = await stream.get_final_response()
    assert isinstance(response, OpenAIResponse)
    assert response.output_text == "Hi there"


async def test_streaming_fields_are_hidden_from_the_author():
    server = server_of(ScriptedModel, reply("Hi there"))
    body = {"input": HELLO, "stream": True, "stream_options": {"include_obfuscation": False}, "temperature": 0.5}
    async with http_client(server) as client:
        answer = await client.post("/v1/responses", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert server.asked[0].model_fields_set == {"input", "temperature"}
    assert type(server.asked[0]) is NeMoGymResponseCreateParamsNonStreaming


async def test_streaming_request_is_validated_leniently():
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


async def test_function_calls_have_the_clients_names():
    server = server_of(ScriptedModel, reply(call("crm__list_orders", page=2)))
    async with openai_client(server) as client:
        stream = await client.responses.create(model="m", input="Hello", stream=True, tools=[NAMESPACE])
        _, done, completed = [event async for event in stream]
    for called in (done.item, completed.response.output[0]):
        assert (called.namespace, called.name, called.arguments) == ("crm", "list_orders", '{"page":2}')


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelFailed("the endpoint is asleep"), "the endpoint is asleep"),
        (KeyError("choices"), "/v1/responses raised KeyError('choices'); the model server's log has the traceback"),
    ],
)
async def test_failure_ends_the_stream_with_an_event(error, message):
    async with openai_client(server_of(ScriptedModel, error)) as client:
        stream = await client.responses.create(model="m", input="Hello", stream=True)
        created, failed = [event async for event in stream]
    assert (created.type, failed.type) == ("response.created", "response.failed")
    assert created.response.id == failed.response.id
    assert (failed.response.status, failed.response.error.code) == ("failed", "server_error")
    assert failed.response.error.message == message


async def test_failed_response_ends_its_stream_as_failed():
    failure = {"status": "failed", "error": {"code": "server_error", "message": "overloaded"}, "output": []}
    failed = NeMoGymResponse.model_validate({**reply("").model_dump(), **failure})
    async with openai_client(server_of(ScriptedModel, failed)) as client:
        stream = await client.responses.create(model="m", input="Hello", stream=True)
        events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[0].response.error is None


@pytest.mark.parametrize("stream", [False, True])
async def test_authors_http_exception_keeps_its_status(stream):
    server = server_of(ScriptedModel, HTTPException(422, detail="no tools, please"))
    async with http_client(server) as client:
        answer = await client.post("/v1/responses", json={"input": "Hello", "stream": stream})
    assert (answer.status_code, answer.json()) == (422, {"detail": "no tools, please"})


async def test_malformed_streaming_request_is_rejected_before_the_stream():
    server = server_of(ScriptedModel, reply("Hi there"))
    async with http_client(server) as client:
        for body in ({"input": 3}, {"input": [3]}, {"input": "x", "tools": 3}, {"input": "x", "tools": [{"type": 3}]}):
            answer = await client.post("/v1/responses", json={**body, "stream": True})
            assert answer.status_code == 422
    assert server.asked == []

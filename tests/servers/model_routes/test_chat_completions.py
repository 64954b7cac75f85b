"""`/v1/chat/completions` of a model server: whole answers and streams."""

import openai
import pytest

from nemo_gym import ModelFailed, NeMoGymChatCompletion
from tests.servers.model_routes.scripted import (
    COMPLETION,
    COMPLETION_FIELDS,
    HELLO,
    ScriptedModel,
    http_client,
    openai_client,
    server_of,
)


async def test_completion_is_returned_as_the_author_made_it():
    server = server_of(ScriptedModel, COMPLETION)
    async with openai_client(server) as client:
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    assert completion.choices[0].message.content == "Hi there"


@pytest.mark.parametrize(("asks", "counts"), [(True, [5]), (False, [])])
async def test_streamed_completion_includes_usage_only_on_request(asks, counts):
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


async def test_completion_stream_ends_with_done():
    server = server_of(ScriptedModel, COMPLETION)
    async with http_client(server) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": HELLO, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("\n\ndata: [DONE]\n\n")


async def test_openai_package_assembles_the_completion_chunks():
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


async def test_failed_completion_is_an_error_even_when_streaming():
    async with openai_client(server_of(ScriptedModel, ModelFailed("the endpoint is asleep"))) as client:
        with pytest.raises(openai.InternalServerError) as failure:
            await client.chat.completions.create(model="m", messages=HELLO, stream=True)
    assert failure.value.response.json()["detail"] == "the endpoint is asleep"

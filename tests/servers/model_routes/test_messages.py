"""`/v1/messages` of a model server: answered by its method for responses, in Anthropic's format."""

import json

from fastapi import HTTPException

from nemo_gym import DataError, ModelFailed, NeMoGymResponse
from nemo_gym.testing import call, reply
from tests.each_case import each_case
from tests.servers.model_routes.scripted import GREETING, ScriptedModel, events_in, http_client, server_of


async def test_message_is_answered_by_the_responses_method():
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


async def test_streamed_message_contains_its_blocks():
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


@each_case(
    ("body", "message_part"),
    [
        (b"{", "JSON decode error"),
        (b"{}", "messages: Field required"),
        (json.dumps({**GREETING, "messages": [{"role": "user"}]}).encode(), "messages.0.content: Field required"),
        (json.dumps({**GREETING, "tools": [{"type": "bash_20250124", "name": "bash"}]}).encode(), "input_schema"),
    ],
)
async def test_malformed_message_is_rejected_in_anthropics_format(body, message_part):
    server = server_of(ScriptedModel, reply("Hi there"))
    async with http_client(server) as client:
        answer = await client.post("/v1/messages", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert message_part in error["error"]["message"]
    assert server.asked == []


FAILED = NeMoGymResponse.model_validate({**reply("").model_dump(), "error": {"message": "the endpoint is asleep"}})


@each_case("stream", [False, True])
@each_case(
    ("answer", "status", "kind", "message_part"),
    [
        (ModelFailed("the endpoint is asleep"), 502, "api_error", "the endpoint is asleep"),
        (KeyError("choices"), 502, "api_error", "KeyError"),
        (FAILED, 502, "api_error", "the endpoint is asleep"),
        (DataError("no such file"), 400, "invalid_request_error", "no such file"),
        (HTTPException(429, detail="slowly"), 429, "rate_limit_error", "slowly"),
    ],
)
async def test_failed_message_is_reported_in_anthropics_format(answer, status, kind, message_part, stream):
    async with http_client(server_of(ScriptedModel, answer)) as client:
        failed = await client.post("/v1/messages", json={**GREETING, "stream": stream})
    assert failed.status_code == status
    assert failed.json()["error"]["type"] == kind
    assert message_part in failed.json()["error"]["message"]

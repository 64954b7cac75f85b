"""The server for Messages endpoints over real HTTP, in front of an endpoint that behaves like Anthropic's."""

import re
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.anthropic_model.app import MAX_PAUSES, AnthropicModel
from responses_api_models.anthropic_model.tests.anthropic_endpoint import CALLS, KEY, REDACTED, THINKING

ENDPOINT = Path(__file__).with_name("anthropic_endpoint.py")
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [
    {"type": "function", "name": name, "description": name, "parameters": {"type": "object"}, "strict": None}
    for name in ("get_weather", "get_time")
]
BY_STREAM = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def anthropic_endpoint(run_endpoint):
    with run_endpoint(ENDPOINT) as url:
        yield url


@pytest.fixture
def seen(anthropic_endpoint):
    """Return the requests to the endpoint since the last call."""
    httpx.get(f"{anthropic_endpoint}/seen", verify=False)
    return lambda: httpx.get(f"{anthropic_endpoint}/seen", verify=False).json()


def served(endpoint, model="echo", **settings):
    own = {"base_url": endpoint, "api_key": KEY, "max_tokens": 500}
    return on_a_port(make_server(AnthropicModel, model=model, **{**own, **settings}))


@asynccontextmanager
async def policy(endpoint, model="echo", **settings):
    """Yield the openai package's client for a server in front of the endpoint."""
    async with (
        served(endpoint, model, **settings) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def validated(response):
    return Response.model_validate(response.model_dump(warnings=False))


@BY_STREAM
async def test_text_is_returned_with_usage(anthropic_endpoint, stream):
    async with policy(anthropic_endpoint, stream=stream) as client:
        response = validated(await client.responses.create(model="ignored", input="Hello"))
    assert (response.output_text, response.status, response.model) == ("echo: Hello", "completed", "echo-20250929")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (19, 7)
    assert response.usage.input_tokens_details.cached_tokens == 5
    assert response.usage.output_tokens_details.reasoning_tokens == 2


@BY_STREAM
async def test_thinking_and_calls_are_kept_over_turns(anthropic_endpoint, seen, stream):
    outputs = [
        {"type": "function_call_output", "call_id": "toolu_1", "output": "cold"},
        {
            "type": "function_call_output",
            "call_id": "toolu_2",
            "output": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0="}],
        },
    ]
    async with policy(anthropic_endpoint, "thinks", stream=stream) as client:
        first = validated(await client.responses.create(model="m", input=HELLO, tools=TOOLS))
        again = [*HELLO, *(item.to_dict() for item in first.output), *outputs]
        second = await client.responses.create(model="m", input=again, tools=TOOLS)
    kinds = ["reasoning", "reasoning", "message", "function_call", "function_call"]
    assert [item.type for item in first.output] == kinds
    assert second.output_text == "echo: tool_resulttool_result"
    _, turn, results = seen()[1]["body"]["messages"]
    assert turn["content"] == [THINKING, REDACTED, {"type": "text", "text": "Let me see."}, *CALLS]
    assert [block["tool_use_id"] for block in results["content"]] == ["toolu_1", "toolu_2"]
    assert results["content"][1]["content"][0]["source"]["media_type"] == "image/png"


async def test_settings_reach_the_endpoint(anthropic_endpoint, seen):
    settings = {
        "anthropic_beta": ["context-1m-2025-08-07", "files-api-2025-04-14"],
        "extra_body": {"top_k": 5, "temperature": 0.2, "cache_control": {"type": "ephemeral"}},
    }
    async with policy(anthropic_endpoint, base_url=f"{anthropic_endpoint}/v1/", **settings) as client:
        await client.responses.create(model="m", input="Hello", temperature=1.0, instructions="Be brief.")
    (request,) = seen()
    assert "authorization" not in request["headers"]
    assert request["headers"]["anthropic-beta"] == "context-1m-2025-08-07,files-api-2025-04-14"
    assert request["body"] == {
        "top_k": 5,
        "temperature": 1.0,
        "cache_control": {"type": "ephemeral"},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "max_tokens": 500,
        "system": "Be brief.",
        "model": "echo",
        "stream": True,
    }


async def test_omitted_fields_are_not_sent(anthropic_endpoint, seen):
    async with policy(anthropic_endpoint, omitted_fields=["temperature", "top_p"]) as client:
        await client.responses.create(model="m", input="Hello", temperature=1.0, top_p=0.5)
    assert not {"temperature", "top_p"} & set(seen()[0]["body"])


@BY_STREAM
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("max_tokens", "max_output_tokens"),
        ("model_context_window_exceeded", "max_output_tokens"),
        ("too-long", "max_output_tokens"),
        ("refusal", "content_filter"),
    ],
)
async def test_cut_off_answer_is_incomplete(anthropic_endpoint, model, reason, stream):
    async with policy(anthropic_endpoint, model, stream=stream) as client:
        response = validated(await client.responses.create(model="m", input="Hello"))
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", reason)
    assert completion.choices[0].finish_reason == {"content_filter": reason}.get(reason, "length")


async def test_paused_turn_is_continued(anthropic_endpoint, seen):
    async with policy(anthropic_endpoint, "pauses") as client:
        response = validated(await client.responses.create(model="m", input="Hello"))
    assert (response.status, response.usage.output_tokens) == ("completed", 14)
    first, second = (request["body"]["messages"] for request in seen())
    assert [message["role"] for message in second] == ["user", "assistant"]
    assert second[1]["content"][0]["input"] == {"query": "x"}
    assert second[:1] == first


async def test_continuations_are_limited(anthropic_endpoint, seen):
    async with policy(anthropic_endpoint, "never-ends") as client:
        response = await client.responses.create(model="m", input="Hello")
    assert (response.status, len(seen())) == ("incomplete", MAX_PAUSES + 1)


@pytest.mark.parametrize("fault", ["429", "529", "500", "overloaded_error", "rate_limit_error"])
async def test_brief_failure_is_retried(anthropic_endpoint, seen, fault):
    async with policy(anthropic_endpoint, f"flaky:{fault}:once") as client:
        response = await client.responses.create(model="m", input="Hello")
    assert response.output_text == "echo: Hello"
    assert len(seen()) == 2


@pytest.mark.parametrize(
    ("model", "status", "error"),
    [
        ("status:529", 503, r"answered 529: .*This is always 529.*\(tried 3 times\)"),
        ("status:429", 503, "answered 429"),
        ("status:400", 502, "answered 400"),
        (
            "fails-in-stream:overloaded_error",
            503,
            r"stream of events with overloaded_error: Overloaded \(tried 3 times",
        ),
        ("fails-in-stream:invalid_request_error", 502, "invalid_request_error: Overloaded$"),
        ("not-json", 502, "not a JSON object"),
        ("mute", 502, "returned an empty answer with the stop_reason None"),
    ],
)
async def test_lasting_failure_fails_the_rollout(anthropic_endpoint, model, status, error):
    async with policy(anthropic_endpoint, model) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model="m", input="Hello")
    assert caught.value.status_code == status
    assert re.search(error, caught.value.response.json()["detail"])


async def test_key_never_appears_in_messages(anthropic_endpoint):
    async with policy(anthropic_endpoint, api_key="sk-ant-wrong-1234567") as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model="m", input="Hello")
    assert "invalid x-api-key [redacted]" in caught.value.response.text
    assert "1234567" not in caught.value.response.text


async def test_unsupported_request_fails_the_rollout(anthropic_endpoint):
    async with policy(anthropic_endpoint) as client:
        with pytest.raises(openai.InternalServerError) as of_responses:
            await client.responses.create(model="m", input="Hello", tools=[{"type": "web_search"}])
        with pytest.raises(openai.InternalServerError) as of_chat:
            await client.chat.completions.create(model="m", messages=HELLO, n=2)
    assert "a tool of type 'web_search'" in of_responses.value.response.text
    assert "n is 2" in of_chat.value.response.text


async def test_odd_fields_are_tolerated(anthropic_endpoint):
    async with policy(anthropic_endpoint, "odd", stream=False) as client:
        response = validated(await client.responses.create(model="m", input="Hello"))
    assert (response.output_text, response.usage) == ("echo: Hello", None)


# The other dialects


async def test_chat_completion_has_text_reasoning_and_calls(anthropic_endpoint, seen):
    chat_tools = [{"type": "function", "function": {"name": tool["name"], "parameters": {}}} for tool in TOOLS]
    async with policy(anthropic_endpoint, "thinks") as client:
        completion = await client.chat.completions.create(model="m", messages=HELLO, tools=chat_tools, stop=["END"])
        ChatCompletion.model_validate(completion.model_dump(warnings=False))
        message = completion.choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": "cold"} for call in message.tool_calls]
        again = [*HELLO, message.to_dict(), *results]
        last = await client.chat.completions.create(model="m", messages=again, tools=chat_tools)
    assert message.content == "<think>Six times\nseven.</think>Let me see."
    assert [call.function.arguments for call in message.tool_calls] == ['{"city": "Oslo"}', '{"zone": "CET"}']
    assert completion.usage.total_tokens == 26
    assert last.choices[0].message.content == "echo: tool_resulttool_result"
    assert seen()[0]["body"]["stop_sequences"] == ["END"]


async def test_messages_route_returns_thinking_that_can_be_sent_back(anthropic_endpoint, seen):
    tools = [{"name": tool["name"], "input_schema": {"type": "object"}} for tool in TOOLS]
    async with served(anthropic_endpoint, "thinks") as url, httpx.AsyncClient(base_url=url) as client:
        asked = {"model": "m", "max_tokens": 50, "messages": HELLO, "tools": tools}
        first = (await client.post("/v1/messages", json=asked)).json()
        results = [{"type": "tool_result", "tool_use_id": each["id"], "content": "cold"} for each in CALLS]
        again = [*HELLO, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": results}]
        second = (await client.post("/v1/messages", json={**asked, "messages": again})).json()
    assert (first["stop_reason"], second["stop_reason"]) == ("tool_use", "end_turn")
    assert seen()[1]["body"]["messages"][1]["content"][:2] == [THINKING, REDACTED]


# The real client package


@BY_STREAM
async def test_requests_equal_those_of_anthropic_client(anthropic_endpoint, seen, stream):
    anthropic = pytest.importorskip("anthropic")
    asked = {
        "model": "thinks",
        "max_tokens": 500,
        "system": "Be kind.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "tools": [
            {"name": name, "description": name, "input_schema": {"type": "object", "properties": {}}}
            for name in ("get_weather", "get_time")
        ],
        "tool_choice": {"type": "any"},
        "extra_body": {"temperature": 0.5},
        "extra_headers": {"anthropic-beta": "files-api-2025-04-14"},
    }
    async with anthropic.AsyncAnthropic(base_url=anthropic_endpoint, api_key=KEY, max_retries=0) as client:
        if stream:
            async with client.messages.stream(**asked) as events:
                theirs = await events.get_final_message()
        else:
            theirs = await client.messages.create(**asked)
    (expected,) = seen()
    # The newest client sends the key as a bearer token, and a newer version of the API with the same formats.
    settings = {
        "anthropic_version": expected["headers"]["anthropic-version"],
        "anthropic_beta": ["files-api-2025-04-14"],
        "key_header": "Authorization" if "authorization" in expected["headers"] else "x-api-key",
    }
    async with policy(anthropic_endpoint, "thinks", stream=stream, **settings) as client:
        ours = await client.responses.create(
            model="m", input=HELLO, instructions="Be kind.", tools=TOOLS, tool_choice="required", temperature=0.5
        )
    (sent,) = seen()
    for name in ("authorization", "x-api-key", "anthropic-version", "anthropic-beta", "content-type"):
        assert sent["headers"].get(name) == expected["headers"].get(name)
    assert (sent["path"], sent["query"], sent["body"]) == (expected["path"], expected["query"], expected["body"])
    thinking, _, text, *calls = theirs.content
    assert (ours.output[0].summary[0].text, ours.output_text) == (thinking.thinking, text.text)
    assert [call.call_id for call in ours.output[3:]] == [call.id for call in calls]
    assert ours.usage.output_tokens == theirs.usage.output_tokens


def test_limit_in_extra_body_is_rejected():
    with pytest.raises(ValueError, match=r"extra_body[\s\S]*max_tokens has no effect here"):
        make_server(AnthropicModel, base_url="http://m", api_key="k", model="m", extra_body={"max_tokens": 5})

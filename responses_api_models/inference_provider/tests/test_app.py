"""The server for hosted providers over real HTTP, in front of an endpoint with their odd completions."""

import re
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from nemo_gym import DataError
from nemo_gym.testing import make_server, on_a_port
from responses_api_models.inference_provider.app import InferenceProvider
from responses_api_models.inference_provider.providers import providers

ENDPOINT = Path(__file__).with_name("provider_endpoint.py")
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None}


@pytest.fixture(scope="module")
def provider(run_endpoint):
    with run_endpoint(ENDPOINT) as url:
        yield url


@pytest.fixture
def seen(provider):
    """Return the requests to the endpoint since the last call."""
    httpx.get(f"{provider}/seen", verify=False)
    return lambda: httpx.get(f"{provider}/seen", verify=False).json()


def server_with(**settings):
    return make_server(InferenceProvider, **{"provider": None, "base_url": None, "api_key": "sk-secret-1", **settings})


@asynccontextmanager
async def policy(provider, model="plain", **settings):
    """Yield the openai package's client for a server in front of the endpoint."""
    server = server_with(base_url=f"{provider}/v1", model=model, **settings)
    async with (
        on_a_port(server) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


ZERO_DETAILS = {
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


@pytest.mark.parametrize(
    ("model", "kinds", "text", "tokens"),
    [
        ("plain", ["message"], "Hi", 7),
        ("bare", ["message"], "Hi", None),
        ("eos", ["message"], "Hi", None),
        ("unclear", ["message"], "Hi", None),
        ("half-usage", ["message"], "Hi", 7),
        ("null-content", ["message"], "", None),
        ("no-content", ["function_call"], "", None),
        ("same-ids", ["function_call", "function_call"], "", None),
        ("reasoning", ["reasoning", "message"], "42", None),
        ("reasoning_content", ["reasoning", "message"], "42", None),
        ("think", ["reasoning", "message"], "42", None),
        ("parts", ["reasoning", "message"], "42", None),
    ],
)
async def test_odd_completion_is_accepted_by_both_routes(provider, model, kinds, text, tokens):
    async with policy(provider, model) as client:
        response = await client.responses.create(model="ignored", input="Hello", tools=[TOOL])
        completion = await client.chat.completions.create(model="ignored", messages=HELLO)
    answered = response.model_dump(warnings=False)
    if answered["usage"]:
        # Null if the provider did not report them. The package's class requires numbers.
        assert answered["usage"].pop("input_tokens_details")["cached_tokens"] in (None, 0)
        assert answered["usage"].pop("output_tokens_details")["reasoning_tokens"] in (None, 0)
        answered["usage"] |= ZERO_DETAILS
    Response.model_validate(answered)
    ChatCompletion.model_validate(completion.model_dump(warnings=False))
    assert ([item.type for item in response.output], response.output_text) == (kinds, text)
    assert (response.usage and response.usage.total_tokens) == tokens
    calls = completion.choices[0].message.tool_calls or []
    assert len({call.id for call in calls}) == kinds.count("function_call")
    assert {call.function.arguments for call in calls} <= {'{"at":"sea"}'}
    if "reasoning" in kinds:
        assert completion.choices[0].message.content == "<think>6·7</think>42"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("max_length", "max_output_tokens"),
        ("overflow", "max_output_tokens"),
        ("sensitive", "content_filter"),
        ("malformed", "content_filter"),
    ],
)
async def test_odd_finish_reason_marks_an_incomplete_answer(provider, model, reason):
    async with policy(provider, model) as client:
        response = await client.responses.create(model="ignored", input="Hello")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", reason)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("none", {"content": "42"}),
        ("think", {"content": "<think>6·7</think>42"}),
        ("reasoning", {"content": "42", "reasoning": "6·7"}),
        ("reasoning_content", {"content": "42", "reasoning_content": "6·7"}),
    ],
)
async def test_reasoning_is_sent_back_in_its_form(provider, seen, form, message):
    async with policy(provider, "reasoning", sends_reasoning=form) as client:
        first = await client.responses.create(model="m", input=HELLO)
        await client.responses.create(model="m", input=[*HELLO, *(item.to_dict() for item in first.output), *HELLO])
        shown = (await client.chat.completions.create(model="m", messages=HELLO)).choices[0].message.to_dict()
        await client.chat.completions.create(model="m", messages=[*HELLO, shown, *HELLO])
    _, of_responses, _, of_chat = (request["body"]["messages"] for request in seen())
    assert of_responses[1] == {"role": "assistant", **message}
    assert {name: of_chat[1].get(name) for name in message} == message


async def test_requests_equal_those_of_openai_client(provider, seen):
    headers = {"X-Title": "nemo-gym"}
    async with policy(provider, limit="max_completion_tokens", default_headers=headers) as client:
        await client.responses.create(model="m", input=HELLO, max_output_tokens=9, temperature=0.5, tools=[TOOL])
    async with openai.AsyncOpenAI(base_url=f"{provider}/v1", api_key="sk-secret-1", default_headers=headers) as client:
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        asked = {"max_completion_tokens": 9, "temperature": 0.5, "tools": [tool]}
        await client.chat.completions.create(model="plain", messages=HELLO, **asked)
    ours, theirs = seen()
    assert (ours["path"], ours["body"]) == (theirs["path"], theirs["body"])
    for name in ("authorization", "x-title", "content-type"):
        assert ours["headers"][name] == theirs["headers"][name]


async def test_responses_are_forwarded_if_chosen(provider, seen):
    async with policy(provider, api="responses", extra_body={"top_k": 3}) as client:
        response = await client.responses.create(model="ignored", input="Hello", temperature=0.5)
    assert (response.output_text, response.model, response.usage) == ("Hi", "plain", None)
    (request,) = seen()
    assert (request["path"], request["body"]["top_k"]) == ("/v1/responses", 3)


@pytest.mark.parametrize(
    ("model", "status", "error"),
    [
        ("busy", 503, r"answered 429.*\(tried 3 times\)"),
        ("error-200", 503, "answered 200 with an error: The upstream is overloaded"),
        ("broken-off", 502, r"answered 200 with an error: Lost\."),
        ("network", 503, "stopped before the end of an answer, with the finish_reason 'network_error'"),
        ("mute", 502, "returned an empty answer without a finish_reason"),
    ],
)
async def test_provider_failure_fails_the_rollout(provider, model, status, error):
    async with policy(provider, model) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model="m", input="Hello")
    assert caught.value.status_code == status
    assert re.search(error, caught.value.response.json()["detail"])


def test_known_provider_sets_address_and_dialect():
    chosen = server_with(provider="DeepSeek", model="m").config
    assert (chosen.base_url, chosen.api) == (providers()["deepseek"].base_url, "chat")
    assert chosen.sends_reasoning == "reasoning_content"
    assert server_with(provider="openai", model="m").config.api == "responses"
    own = server_with(provider="openai", base_url="http://127.0.0.1:9/v1", api="chat", model="m").config
    assert (own.base_url, own.api, own.limit) == ("http://127.0.0.1:9/v1", "chat", "max_completion_tokens")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("openruoter", "Did you mean 'openrouter'"),
        ("zzzzzz", "The known providers are baseten, cerebras"),
        (None, "Name a provider, such as openrouter, or set base_url"),
    ],
)
def test_unknown_provider_is_reported_with_suggestions(name, advice):
    with pytest.raises(DataError, match=advice):
        server_with(provider=name, model="m")


def test_table_has_complete_addresses():
    assert all(each.base_url.startswith("https://") for each in providers().values())
    assert {"openai", "openrouter", "together", "fireworks", "groq", "deepseek", "mistral", "nvidia"} <= set(
        providers()
    )

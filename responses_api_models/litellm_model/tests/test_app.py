"""The server for litellm's providers over real HTTP, with the litellm package and endpoints in two dialects."""

import asyncio
import importlib.util
import re
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from nemo_gym.jsonl import dump_json
from nemo_gym.testing import make_server, on_a_port
from responses_api_models.litellm_model.app import LiteLLMModel
from responses_api_models.litellm_model.client import LiteLLMClient

# `importorskip` would import litellm with other settings than the server.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("litellm") is None,
        reason="litellm is not installed: pip install -r responses_api_models/litellm_model/requirements.txt",
    ),
]

FOLDER = Path(__file__).parent
ANTHROPIC = FOLDER.parents[1] / "anthropic_model" / "tests" / "anthropic_endpoint.py"
KEY = "sk-ant-api03-very-secret"
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [
    {"type": "function", "name": name, "description": name, "parameters": {"type": "object"}, "strict": None}
    for name in ("get_weather", "get_time")
]


@pytest.fixture(scope="module")
def anthropic_endpoint(run_endpoint):
    with run_endpoint(ANTHROPIC) as url:
        yield url


@pytest.fixture(scope="module")
def waiting_endpoint(run_endpoint):
    with run_endpoint(FOLDER / "waiting_endpoint.py") as url:
        yield url


@pytest.fixture
def messages_seen(anthropic_endpoint):
    """Return the requests to the Messages endpoint since the last call."""
    httpx.get(f"{anthropic_endpoint}/seen", verify=False)
    return lambda: httpx.get(f"{anthropic_endpoint}/seen", verify=False).json()


@asynccontextmanager
async def policy(**settings):
    """Yield the openai package's client for a server with these settings."""
    async with (
        on_a_port(make_server(LiteLLMModel, **settings)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def of_openai(endpoint, model="echo", **settings):
    return policy(**{"base_url": f"{endpoint}/v1", "api_key": "sk-very-secret", "model": f"openai/{model}"} | settings)


def of_anthropic(endpoint, model="echo", **settings):
    return policy(**{"base_url": endpoint, "api_key": KEY, "model": f"anthropic/{model}"} | settings)


def validated(response):
    return Response.model_validate(response.model_dump(warnings=False))


async def failure_of(client, **asked):
    """Return the status and the problem of a request that fails."""
    with pytest.raises(openai.APIStatusError) as caught:
        await client.responses.create(model="m", input="Hello", **asked)
    return caught.value.status_code, caught.value.response.json()


async def test_text_and_usage_of_chat_completions(endpoint, seen):
    async with of_openai(endpoint, extra_body={"top_k": 5, "temperature": 0.2, "seed": 3}) as client:
        response = validated(await client.responses.create(model="m", input="Hello", temperature=1.0))
    assert (response.output_text, response.status, response.model) == ("echo: Hello", "completed", "echo")
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens) == (11, 7)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (5, 3)
    (request,) = seen()
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    assert request["body"] == {"model": "echo", "messages": messages, "temperature": 1.0, "top_k": 5, "seed": 3}


async def test_usage_of_messages_includes_the_cache(anthropic_endpoint):
    async with of_anthropic(anthropic_endpoint) as client:
        response = validated(await client.responses.create(model="m", input="Hello"))
    assert (response.output_text, response.usage.input_tokens, response.usage.output_tokens) == ("echo: Hello", 19, 7)
    assert response.usage.input_tokens_details.cached_tokens == 5
    assert response.usage.output_tokens_details.reasoning_tokens == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_thinking_and_calls_are_kept_over_turns(anthropic_endpoint, messages_seen, stream):
    outputs = [{"type": "function_call_output", "call_id": f"toolu_{at}", "output": "cold"} for at in (1, 2)]
    async with of_anthropic(anthropic_endpoint, "thinks", stream=stream) as client:
        first = validated(await client.responses.create(model="m", input=HELLO, tools=TOOLS))
        again = [*HELLO, *(item.to_dict() for item in first.output), *outputs]
        second = await client.responses.create(model="m", input=again, tools=TOOLS)
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
    assert first.output[0].summary[0].text == "Six times\nseven."
    assert [item.arguments for item in first.output[2:]] == ['{"city": "Oslo"}', '{"zone": "CET"}']
    assert second.output_text == "echo: tool_resulttool_result"
    _, turn, results = messages_seen()[1]["body"]["messages"]
    # The endpoint rejects thinking that was changed.
    kinds = ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in turn["content"]] == kinds
    assert [block["tool_use_id"] for block in results["content"]] == ["toolu_1", "toolu_2"]


async def test_calls_of_chat_completions_are_returned(endpoint):
    async with of_openai(endpoint, "parallel") as client:
        response = validated(await client.responses.create(model="m", input="Hello", tools=TOOLS))
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    ChatCompletion.model_validate(completion.model_dump(warnings=False))
    assert [item.type for item in response.output] == ["message", "function_call", "function_call"]
    assert [call.function.name for call in completion.choices[0].message.tool_calls] == ["get_weather", "get_time"]


async def test_clients_may_stream(endpoint):
    async with of_openai(endpoint) as client:
        events = [event async for event in await client.responses.create(model="m", input="Hello", stream=True)]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "echo: Hello"


async def test_stream_without_answer_fails(endpoint):
    async with of_openai(endpoint, stream=True) as client:
        _, problem = await failure_of(client)
    assert "sent a stream without an answer. Set stream to false" in problem["detail"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("model", "reason"),
    [("max_tokens", "max_output_tokens"), ("too-long", "max_output_tokens"), ("refusal", "content_filter")],
)
async def test_cut_off_answer_is_incomplete(anthropic_endpoint, model, reason, stream):
    async with of_anthropic(anthropic_endpoint, model, stream=stream) as client:
        response = validated(await client.responses.create(model="m", input="Hello"))
    assert (response.status, response.incomplete_details.reason) == ("incomplete", reason)


async def test_context_overflow_of_chat_completions_is_incomplete(endpoint):
    async with of_openai(endpoint, "too-long") as client:
        response = validated(await client.responses.create(model="m", input="Hello"))
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_rate_limit_is_retried(endpoint, anthropic_endpoint, seen, messages_seen):
    async with of_openai(endpoint, "flaky:429:1:litellm") as client:
        assert (await client.responses.create(model="m", input="Hello")).output_text == "echo: Hello"
    async with of_anthropic(anthropic_endpoint, "flaky:429:litellm") as client:
        assert (await client.responses.create(model="m", input="Hello")).output_text == "echo: Hello"
    assert (len(seen()), len(messages_seen())) == (2, 2)


async def test_pause_has_the_length_of_retry_after(waiting_endpoint, caplog):
    caplog.set_level("INFO")
    async with of_openai(waiting_endpoint, "later:1") as client:
        assert (await client.responses.create(model="m", input="Hello")).output_text == "Hello"
    # Without the header, the first pause is at most 0.75 s.
    assert re.findall(r"next try after a pause of ([\d.]+) s", caplog.text) == ["1.0"]


async def test_overload_within_a_stream_is_retried(anthropic_endpoint, messages_seen):
    async with of_anthropic(anthropic_endpoint, "flaky:overloaded_error:litellm", stream=True) as client:
        assert (await client.responses.create(model="m", input="Hello")).output_text == "echo: Hello"
    assert len(messages_seen()) == 2


@pytest.mark.parametrize(
    ("number", "failure", "requests"),
    [(429, (503, "overloaded"), 3), (529, (503, "overloaded"), 3), (400, (502, "model_failed"), 1)],
)
async def test_failure_has_the_endpoints_status(anthropic_endpoint, messages_seen, number, failure, requests):
    async with of_anthropic(anthropic_endpoint, f"status:{number}") as client:
        code, problem = await failure_of(client)
    assert ((code, problem["failure_class"]), len(messages_seen())) == (failure, requests)
    assert re.search(rf"policy_model: .* answered {number}: .*This is always {number}\.", problem["detail"])


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("not-json", "failed in litellm: .*hotel's network"),
        ("hang-up", "lost the connection"),
        ("slow:30", "did not answer within 1 s"),
        ("bad-request", "answered 400: .*Unknown field 'spam'"),
        ("no-choice", "without choices"),
    ],
)
async def test_fault_is_not_retried(endpoint, seen, model, error):
    async with of_openai(endpoint, model, request_timeout_s=1.0) as client:
        code, problem = await failure_of(client)
    assert (code, problem["failure_class"], len(seen())) == (502, "model_failed", 1)
    assert re.search(error, problem["detail"]), problem["detail"]
    assert "Traceback" not in problem["detail"]


async def test_unreachable_endpoint_is_retried():
    async with policy(model="openai/m", base_url="http://127.0.0.1:1/v1", api_key="k", request_tries=2) as client:
        _, problem = await failure_of(client)
    assert re.search(r"could not connect: .*127\.0\.0\.1:1.* \(tried 2 times\)", problem["detail"])


async def test_wrong_key_is_masked_with_advice(endpoint):
    async with of_openai(endpoint, "tells-key") as client:
        _, problem = await failure_of(client)
    assert "Incorrect API key provided: [redacted]. Set api_key of policy_model" in problem["detail"]
    assert "very-secret" not in problem["detail"]


async def test_missing_key_names_the_variable(anthropic_endpoint, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with policy(model="anthropic/echo", base_url=anthropic_endpoint) as client:
        _, problem = await failure_of(client)
    assert "or the environment variable ANTHROPIC_API_KEY" in problem["detail"]


async def test_key_of_the_environment_is_used(anthropic_endpoint, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with policy(model="anthropic/echo", base_url=anthropic_endpoint, api_key=None) as client:
        assert (await client.responses.create(model="m", input="Hello")).output_text == "echo: Hello"


async def test_other_addresses_get_neither_key_nor_arguments(endpoint, seen, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-environment")
    client = LiteLLMClient(
        base_url=f"{endpoint}/v1", api_key="own-key", server="m", arguments={"extra_headers": {"X-Secret": "s"}}
    )
    body = dump_json({"model": "openai/echo", "messages": HELLO})
    for url, headers in [(f"{endpoint}/v1", {"Authorization": "Bearer own-key"}), (f"{endpoint}/./v1", {})]:
        status, _, _ = await client.send(f"{url}/chat/completions", body, headers, 30.0)
        assert status == 200
    found = [(each["headers"]["authorization"], each["headers"].get("x-secret")) for each in seen()]
    assert found == [("Bearer own-key", "s"), ("Bearer none", None)]


async def test_unsupported_field_is_not_dropped(anthropic_endpoint, messages_seen):
    async with of_anthropic(anthropic_endpoint, extra_body={"seed": 3, "logit_bias": {"5": 1}}) as client:
        _, problem = await failure_of(client)
    assert re.search("litellm cannot send (seed, logit_bias|logit_bias, seed) to anthropic/echo", problem["detail"])
    assert messages_seen() == []


async def test_omitted_fields_are_not_sent(anthropic_endpoint, messages_seen):
    settings = {"extra_body": {"seed": 3, "top_k": 5}, "omitted_fields": ["seed"]}
    async with of_anthropic(anthropic_endpoint, **settings) as client:
        await client.responses.create(model="m", input="Hello", max_output_tokens=50)
    (request,) = messages_seen()
    assert (request["body"]["top_k"], request["body"]["max_tokens"], "seed" in request["body"]) == (5, 50, False)


@pytest.mark.parametrize("name", ["api_base", "mock_response", "aws_region_name", "num_retries", "timeout"])
async def test_arguments_of_litellm_are_rejected_in_requests(endpoint, seen, name):
    async with of_openai(endpoint) as client:
        _, problem = await failure_of(client, metadata={"extra_body": f'{{"{name}": "x"}}'})
    assert f"the request's field '{name}' is an argument of litellm" in problem["detail"]
    assert seen() == []


async def test_default_headers_are_sent(endpoint, seen):
    async with of_openai(endpoint, default_headers={"X-Team": "gym"}) as client:
        await client.responses.create(model="m", input="Hello")
    (request,) = seen()
    assert (request["headers"]["x-team"], request["headers"]["authorization"]) == ("gym", "Bearer sk-very-secret")


async def test_litellm_params_reach_litellm(anthropic_endpoint, messages_seen):
    settings = {"extra_body": {"seed": 3}, "litellm_params": {"allowed_openai_params": ["seed"]}}
    async with of_anthropic(anthropic_endpoint, **settings) as client:
        await client.responses.create(model="m", input="Hello")
    (request,) = messages_seen()
    assert request["body"]["seed"] == 3


async def test_many_calls_run_at_once_with_few_threads(waiting_endpoint):
    # litellm's own limit for one host is 500.
    calls = 600
    before = threading.active_count()
    server = make_server(LiteLLMModel, base_url=f"{waiting_endpoint}/v1", api_key="k", model=f"openai/all:{calls}")
    connector = aiohttp.TCPConnector(limit=0)
    async with on_a_port(server) as url, aiohttp.ClientSession(url, connector=connector) as client:
        asked = [client.post("/v1/responses", json={"input": "Hi"}) for _ in range(calls)]
        replies = await asyncio.gather(*asked)
        assert {reply.status for reply in replies} == {200}
    assert threading.active_count() - before < 50


def test_import_needs_no_network_nor_dotenv(tmp_path):
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    script = (
        "import os, socket\n"
        "def connect(self, address): raise AssertionError(f'connects to {address}')\n"
        "socket.socket.connect = socket.socket.connect_ex = connect\n"
        "socket.getaddrinfo = lambda *asked, **further: connect(None, asked)\n"
        "from responses_api_models.litellm_model.client import load_litellm\n"
        "litellm = load_litellm()\n"
        "print(litellm.drop_params, litellm.modify_params, os.environ.get('FROM_DOTENV'))\n"
    )
    root = str(FOLDER.parents[2])
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": root}, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False False None\n", 0), done.stderr


@pytest.mark.parametrize("name", ["uses_responses_api", "uses_completions_api", "return_token_id_information"])
def test_settings_of_engines_are_rejected(name):
    with pytest.raises(ValueError, match=f"{name} is not possible with litellm. Use vllm_model"):
        make_server(LiteLLMModel, model="openai/m", **{name: True})

"""The server for Azure OpenAI over real HTTP, compared with the openai package's own Azure client."""

import re
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import openai
import orjson
import pytest

from nemo_gym import DataError
from nemo_gym.testing import make_server, on_a_port
from responses_api_models.azure_openai_model.app import AzureModelServer
from responses_api_models.azure_openai_model.tests.azure_endpoint import KEY

ENDPOINT = Path(__file__).with_name("azure_endpoint.py")
HELLO = [{"role": "user", "content": "Hello"}]
FUNCTION = {"name": "look", "parameters": {"type": "object"}}
VERSION = {"api-version": "2024-10-21"}


@pytest.fixture(scope="module")
def azure(run_endpoint):
    with run_endpoint(ENDPOINT) as url:
        yield url


@pytest.fixture
def seen(azure):
    """Return the requests to the endpoint since the last call."""
    httpx.get(f"{azure}/seen", verify=False)
    return lambda: httpx.get(f"{azure}/seen", verify=False).json()


def settings_for(azure, path="/openai/v1", model="gpt", **settings):
    query = {} if path.endswith("/v1") else VERSION
    own = {"openai_base_url": f"{azure}{path}", "openai_api_key": KEY, "openai_model": model, "default_query": query}
    return {**own, **settings}


@asynccontextmanager
async def policy(azure, path="/openai/v1", model="gpt", **settings):
    """Yield the openai package's client for a server in front of the endpoint."""
    server = make_server(AzureModelServer, **settings_for(azure, path, model, **settings))
    async with (
        on_a_port(server) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def sent(request):
    """Return what must be equal for two clients."""
    return request["path"], request["query"], request["headers"]["api-key"], request["body"]


@pytest.mark.parametrize("path", ["/openai/v1", "", "/", "/openai", "/openai/deployments/gpt"])
async def test_requests_equal_those_of_openai_client(azure, seen, path):
    tool = {"type": "function", "function": FUNCTION}
    hosted = {"type": "function", **FUNCTION, "strict": False}
    async with policy(azure, path) as client:
        await client.chat.completions.create(model="ignored", messages=HELLO, tools=[tool], temperature=0.5)
        await client.responses.create(model="ignored", input=HELLO, tools=[hosted], max_output_tokens=99)
    ours = seen()
    if path.endswith("/v1"):
        theirs = openai.AsyncOpenAI(base_url=f"{azure}{path}", api_key=KEY, default_headers={"api-key": KEY})
    else:
        theirs = openai.AsyncAzureOpenAI(azure_endpoint=azure, api_key=KEY, api_version=VERSION["api-version"])
    async with theirs:
        await theirs.chat.completions.create(model="gpt", messages=HELLO, tools=[tool], temperature=0.5)
        await theirs.responses.create(model="gpt", input=HELLO, tools=[hosted], max_output_tokens=99)
    assert [sent(each) for each in ours] == [sent(each) for each in seen()]
    assert all("authorization" not in each["headers"] for each in ours)


@pytest.mark.parametrize("path", ["/openai/v1", "/"])
async def test_answers_are_returned_with_additional_fields(azure, path):
    async with policy(azure, path) as client:
        completion = await client.chat.completions.create(model="ignored", messages=HELLO)
        response = await client.responses.create(model="ignored", input="Hello")
    assert (completion.choices[0].message.content, completion.usage.total_tokens) == ("Hello!", 11)
    assert completion.prompt_filter_results[0]["content_filter_results"]["hate"]["filtered"] is False
    assert (response.output_text, response.content_filters[0]["blocked"]) == ("Hello!", False)


async def test_answers_are_streamed(azure):
    async with policy(azure) as client:
        chunks = [each async for each in await client.chat.completions.create(model="m", messages=HELLO, stream=True)]
        events = [each async for each in await client.responses.create(model="m", input="Hello", stream=True)]
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == "Hello!"
    assert events[-1].response.output_text == "Hello!"


@pytest.mark.parametrize("model", ["filters-prompt", "filters-answer"])
async def test_filtered_content_is_an_incomplete_answer(azure, model):
    async with policy(azure, model=model) as client:
        response = await client.responses.create(model="ignored", input="Hello")
        completion = await client.chat.completions.create(model="ignored", messages=HELLO)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "content_filter")
    assert completion.choices[0].finish_reason == "content_filter"


async def test_filtered_prompt_is_answered_without_parsing(azure):
    text = b'{"input":' + orjson.dumps(HELLO) + b"}"
    headers = {"content-type": "application/json", "x-nemo-gym-input-at": "9"}
    async with (
        on_a_port(make_server(AzureModelServer, **settings_for(azure, model="filters-prompt"))) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        replied = await client.post("/v1/responses", content=text, headers=headers)
    assert replied.json()["incomplete_details"] == {"reason": "content_filter"}


@pytest.mark.parametrize(
    ("model", "settings", "status", "error"),
    [
        ("filters-prompt", {"content_filter_is_failure": True}, 502, "answered 400.*content management policy"),
        ("bad-request", {}, 502, "answered 400.*Unsupported parameter: 'spam'"),
        ("missing", {}, 502, "answered 404.*deployment for this resource does not exist"),
        ("gpt", {"openai_api_key": "wrong-key-987654"}, 502, "answered 401.*Access denied.*Check the API key"),
        ("busy", {}, 503, r"answered 429.*\(tried 3 times\)"),
    ],
)
async def test_endpoint_failure_fails_the_rollout(azure, model, settings, status, error):
    async with policy(azure, model=model, **settings) as client:
        with pytest.raises(openai.InternalServerError) as of_responses:
            await client.responses.create(model="ignored", input="Hello")
        with pytest.raises(openai.InternalServerError) as of_chat:
            await client.chat.completions.create(model="ignored", messages=HELLO)
    for caught in (of_responses, of_chat):
        assert caught.value.status_code == status
        assert re.search(error, caught.value.response.json()["detail"])
        assert "987654" not in caught.value.response.text


async def test_pause_in_milliseconds_is_followed(azure, seen):
    # Retry-After asks for a minute. Following it would exceed the timeout of this client.
    async with policy(azure, model="busy-once") as client:
        answer = await client.with_options(timeout=25).responses.create(model="ignored", input="Hello")
    assert answer.output_text == "Hello!"
    assert len(seen()) == 2


def test_older_paths_need_an_api_version():
    settings = settings_for("https://example.openai.azure.com", "/", default_query={"api-version": None})
    with pytest.raises(DataError, match="default_query needs an api-version"):
        make_server(AzureModelServer, **settings)

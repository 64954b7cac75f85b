"""Clients for a `vllm_model` server with given settings, in front of the test's endpoint."""

import re
from contextlib import asynccontextmanager, contextmanager

import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.vllm_model.app import VLLMModel

HELLO = [{"role": "user", "content": "Hello"}]
HELLO_IN_PARTS = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": None}


def served(**settings):
    """Serve these settings on a free port until the block ends; yield the address."""
    return on_a_port(make_server(VLLMModel, **settings))


@asynccontextmanager
async def policy(endpoint, model="echo", **settings):
    """Yield the openai package's client for such a server."""
    settings = {"base_url": f"{endpoint}/v1", "api_key": "dummy_key", "model": model, **settings}
    async with (
        served(**settings) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


async def respond(endpoint, model, *, asked=None, **settings):
    """Return a fresh server's response to a greeting, validated by the openai package."""
    async with policy(endpoint, model, **settings) as client:
        response = await client.responses.create(model="ignored", **{"input": "Hello", **(asked or {})})
        return Response.model_validate(response.model_dump(warnings=False))


async def complete(endpoint, model, *, asked=None, **settings):
    """Return a fresh server's completion of a greeting, validated by the openai package."""
    async with policy(endpoint, model, **settings) as client:
        completion = await client.chat.completions.create(model="ignored", **{"messages": HELLO, **(asked or {})})
        return ChatCompletion.model_validate(completion.model_dump(warnings=False))


@contextmanager
def model_fails(error):
    """Expect the block to fail with a model failure that matches `error`."""
    with pytest.raises(openai.InternalServerError) as caught:
        yield
    assert caught.value.status_code == 502
    problem = caught.value.response.json()
    assert (problem["failure_class"], problem["server"]) == ("model_failed", "policy_model")
    assert re.search(error, problem["detail"])

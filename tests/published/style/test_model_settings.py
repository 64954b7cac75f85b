"""Model blocks of published configs, over real HTTP to a real endpoint."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest

from nemo_gym.config.explain import parse_settings
from nemo_gym.config.models import Origin
from nemo_gym.errors import ConfigError
from nemo_gym.testing import connected_server, on_a_port
from responses_api_models.azure_openai_model.app import AzureModelServer
from responses_api_models.local_vllm_model.app import LocalVLLMModel
from responses_api_models.openai_model.app import SimpleModelServer
from responses_api_models.vllm_model.app import VLLMModel
from tests.each_case import each_case

ADDRESS = {"name": "policy_model", "host": "127.0.0.1", "port": 0, "entrypoint": "app.py"}
BLOCK = "policy_model.responses_api_models.x"
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
SAID = {"role": "assistant", "content": "Hi."}
HISTORY = [{"role": "user", "content": "Hello"}, THOUGHT, SAID, {"role": "user", "content": "And?"}]


def block_of(server, endpoint):
    """Return the settings of a block that calls the endpoint."""
    prefix = "" if server is VLLMModel else "openai_"
    url = f"{endpoint}/v1"
    return {**ADDRESS, f"{prefix}base_url": url, f"{prefix}api_key": "k", f"{prefix}model": "echo"}


def parsed(server, settings):
    """Parse a block as a server's process does."""
    kind = server.model_fields["config"].annotation
    return parse_settings(kind, settings, block=BLOCK, origins={"": Origin("my.yaml", 4)})


@asynccontextmanager
async def served(server, endpoint, **settings):
    """Serve a block with these settings in front of the endpoint; yield a client."""
    config = parsed(server, {**block_of(server, endpoint), **settings})
    running = connected_server(server, config.model_dump(exclude_unset=True))
    async with on_a_port(running) as url, httpx.AsyncClient(base_url=url) as client:
        yield client


async def respond(client, **asked):
    return await client.post("/v1/responses", json={"input": HISTORY, **asked})


@each_case("server", [VLLMModel, SimpleModelServer, AzureModelServer])
async def test_default_headers_reach_the_endpoint(endpoint, seen, server):
    async with served(server, endpoint, openai_default_headers={"X-Login": "me"}) as client:
        assert (await respond(client)).status_code == 200
    assert seen()[-1]["headers"].get("x-login") == "me"


@each_case(
    ("settings", "paths"),
    [
        ({"is_responses_native": True}, ["/v1/responses"]),
        ({"is_responses_native": "false"}, ["/v1/chat/completions"]),
        ({"use_completions_api": True, "render_chat_template": True}, ["/tokenize", "/v1/completions", "/detokenize"]),
        ({"use_completions_api": None, "render_chat_template": False}, ["/v1/chat/completions"]),
    ],
)
async def test_published_settings_choose_the_route(endpoint, seen, settings, paths):
    earlier = len(seen())
    async with served(VLLMModel, endpoint, **settings) as client:
        assert (await respond(client, max_output_tokens=9)).status_code == 200
    assert [request["path"] for request in seen()[earlier:]] == paths


@each_case(
    ("server", "settings", "reasoning_is_sent"),
    [
        (VLLMModel, {"uses_interleaved_reasoning": True}, True),
        (VLLMModel, {"uses_interleaved_reasoning": "False"}, False),
        (VLLMModel, {"drop_input_reasoning_items": False}, True),
        (VLLMModel, {"drop_input_reasoning_items": True}, False),
        (VLLMModel, {"drop_input_reasoning_items": True, "is_responses_native": True}, False),
        (SimpleModelServer, {"drop_input_reasoning_items": False}, True),
        (SimpleModelServer, {"drop_input_reasoning_items": True}, False),
    ],
)
async def test_earlier_reasoning_is_sent_or_left_out(endpoint, seen, server, settings, reasoning_is_sent):
    async with served(server, endpoint, **settings) as client:
        assert (await respond(client)).status_code == 200
    sent = str(seen()[-1]["body"])
    assert ("Hm." in sent, "Hi." in sent) == (reasoning_is_sent, True)


@each_case("name", ["max_concurrent_requests", "num_concurrent_requests"])
def test_published_limit_of_requests_is_ours(name):
    config = parsed(VLLMModel, {**block_of(VLLMModel, "http://127.0.0.1:1"), name: 3})
    assert config.max_requests_in_flight == 3


async def test_published_number_of_attempts_is_ours(endpoint, seen):
    async with served(VLLMModel, endpoint, max_http_attempts=1, model="status:503") as client:
        assert (await respond(client)).status_code != 200
    assert len(seen()) == 1


@each_case(
    ("server", "settings", "message"),
    [
        (
            VLLMModel,
            {"endpoint_url": "http://e"},
            "endpoint_url does not exist here. Describe the endpoint with: base_url, api_key, model, default_headers.",
        ),
        (
            SimpleModelServer,
            {"is_responses_native": False},
            "is_responses_native needs uses_responses_api, which this server does not have. Remove it, or choose",
        ),
        (
            VLLMModel,
            {"use_completions_api": True, "render_chat_template": False},
            "render_chat_template contradicts uses_completions_api: True. Remove one of them.",
        ),
        (VLLMModel, {"uses_interleaved_reasoning": 7}, "uses_interleaved_reasoning must be true or false, but is 7."),
        (VLLMModel, {"use_completions_api": True, "tokenizer": "Qwen/Qwen3-8B"}, "'Qwen/Qwen3-8B' not found. Create"),
    ],
)
def test_setting_without_equivalent_is_rejected(server, settings, message):
    with pytest.raises(ConfigError) as caught:
        parsed(server, {**block_of(server, "http://127.0.0.1:1"), **settings})
    assert "my.yaml:4: policy_model.responses_api_models.x." in str(caught.value)
    assert message in str(caught.value)


def test_own_setting_of_a_folder_keeps_its_meaning():
    class OwnConfig(VLLMModel.model_fields["config"].annotation):
        uses_interleaved_reasoning: bool = True
        endpoint_url: str = ""

    class OwnModel(VLLMModel):
        config: OwnConfig

    settings = {"uses_interleaved_reasoning": False, "endpoint_url": "http://e"}
    config = parsed(OwnModel, {**block_of(VLLMModel, "http://127.0.0.1:1"), **settings})
    assert (config.endpoint_url, config.uses_interleaved_reasoning) == ("http://e", False)
    assert config.sends_reasoning == "think"


def test_options_of_the_engine_have_our_names():
    settings = {
        **ADDRESS,
        "model": "m",
        "vllm_serve_kwargs": {"enforce_eager": True},
        "vllm_serve_env_vars": {"A": "b"},
    }
    config = parsed(LocalVLLMModel, settings)
    assert (config.args, config.env) == ({"enforce_eager": True}, {"A": "b"})

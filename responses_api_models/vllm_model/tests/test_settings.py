"""Settings that change or add fields and headers of requests, over real HTTP to a real endpoint."""

import json

import openai
import pytest

from nemo_gym.testing import make_server
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.tests.asking import (
    HELLO,
    HELLO_IN_PARTS,
    TOOL,
    complete,
    model_fails,
    policy,
    respond,
)


async def test_request_overrides_server_settings(endpoint, bodies):
    metadata = {
        "extra_body": json.dumps({"top_k": 7, "chat_template_kwargs": {"c": 3}}),
        "chat_template_kwargs": json.dumps({"d": 4}),
        "note": "stays here",
    }
    await respond(
        endpoint,
        "echo",
        asked={"metadata": metadata, "temperature": 1.0, "top_p": 0.5, "max_output_tokens": 9},
        extra_body={"temperature": 0.6, "top_k": 20, "min_p": 0.1, "chat_template_kwargs": {"b": 2, "a": 0}},
        chat_template_kwargs={"a": 1},
    )
    assert bodies() == [
        {
            "model": "echo",
            "messages": HELLO_IN_PARTS,
            "temperature": 1.0,
            "top_p": 0.5,
            "max_tokens": 9,
            "top_k": 7,
            "min_p": 0.1,
            "chat_template_kwargs": {"a": 0, "b": 2, "c": 3, "d": 4},
        }
    ]


@pytest.mark.parametrize("default", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
async def test_limit_of_the_request_replaces_every_default(endpoint, bodies, default):
    settings = {"extra_body": {default: 4096}}
    most = {"extra_body": f'{{"{default}": 5}}'}
    await respond(endpoint, "echo", asked={"max_output_tokens": 9}, **settings)
    await complete(endpoint, "echo", asked={"max_completion_tokens": 9}, **settings)
    await respond(endpoint, "echo", asked={"max_output_tokens": 9, "metadata": most}, **settings)
    await respond(endpoint, "echo", asked={"max_output_tokens": 9}, uses_responses_api=True, **settings)
    limits = [[value for name, value in body.items() if name.startswith("max_")] for body in bodies()]
    assert limits == [[9], [9], [5], [9]]


@pytest.mark.parametrize("wanted", [None, 2])
async def test_alternative_tokens_of_the_request_are_kept(endpoint, bodies, wanted):
    asked = {"logprobs": True, "top_logprobs": wanted}
    await complete(endpoint, "echo", asked=asked, return_token_id_information=True)
    assert bodies()[0]["top_logprobs"] == (wanted or 0)


@pytest.mark.parametrize(("settings", "sent"), [({}, [None, None]), ({"sends_strict": True}, [True, None])])
async def test_strict_tools_are_sent_if_wanted(endpoint, bodies, settings, sent):
    tools = [{**TOOL, "strict": True}, {**TOOL, "name": "other", "strict": False}]
    await respond(endpoint, "echo", asked={"tools": tools}, **settings)
    (body,) = bodies()
    assert [tool["function"].get("strict") for tool in body["tools"]] == sent


async def test_null_in_a_request_leaves_the_servers_setting(endpoint, bodies):
    asked = {"temperature": None, "tools": None, "tool_choice": None}
    await respond(endpoint, "echo", asked=asked, extra_body={"temperature": 0.6})
    assert bodies() == [{"model": "echo", "messages": HELLO_IN_PARTS, "temperature": 0.6}]


async def test_sampling_overrides_win_over_every_request(endpoint, bodies):
    settings = {
        "sampling_overrides": {"temperature": 0.6, "top_p": None, "top_k": 40, "max_output_tokens": 100},
        "extra_body": {"top_k": 20, "top_p": 0.1, "min_p": 0.1},
    }
    asked = {"temperature": 1.0, "top_p": 0.5, "metadata": {"extra_body": '{"top_k": 7, "seed": 3}'}}
    response = await respond(endpoint, "echo", asked={**asked, "max_output_tokens": 9}, **settings)
    await complete(endpoint, "echo", asked={**asked, "max_completion_tokens": 9}, **settings)
    sent = {"temperature": 0.6, "top_k": 40, "max_tokens": 100, "min_p": 0.1, "seed": 3}
    for body in bodies():
        assert {name: value for name, value in body.items() if name not in ("model", "messages")} == sent
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.6, None, 100)


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"messages": []}, "'messages' is not a sampling parameter. Remove it from sampling_overrides"),
        ({"max_tokens": 1, "max_output_tokens": 2}, "max_tokens and max_output_tokens mean the same. Set only one"),
        ([1], "sampling_overrides"),
    ],
)
def test_invalid_sampling_overrides_are_rejected(overrides, error):
    with pytest.raises(ValueError, match=error):
        make_server(VLLMModel, base_url="http://x/v1", api_key="k", model="m", sampling_overrides=overrides)


@pytest.mark.parametrize("value", ["{", "[1]"])
async def test_unreadable_metadata_settings_are_reported(endpoint, value):
    with model_fails(r"metadata\.extra_body"):
        await respond(endpoint, "echo", asked={"metadata": {"extra_body": value}})


@pytest.mark.parametrize(("replace", "role"), [(True, "system"), (False, "developer")])
async def test_developer_role_is_replaced_if_configured(endpoint, bodies, replace, role):
    asked = {"input": [*HELLO, {"role": "developer", "content": "Be brief."}]}
    await respond(endpoint, "echo", asked=asked, replace_developer_role_with_system=replace)
    assert [message["role"] for message in bodies()[0]["messages"]] == ["user", role]


async def test_default_headers_are_sent_on_both_routes(endpoint, seen):
    headers = {"X-Team": "blue", "authorization": "Basic c2VjcmV0LXRleHQ="}
    await respond(endpoint, "older", default_headers=headers, return_token_id_information=True)
    await complete(endpoint, "echo", default_headers=headers)
    assert [request["path"] for request in seen()] == ["/v1/chat/completions", "/tokenize", "/v1/chat/completions"]
    sent = [(request["headers"]["x-team"], request["headers"]["authorization"]) for request in seen()]
    assert sent == [("blue", "Basic c2VjcmV0LXRleHQ=")] * 3


async def test_secret_header_is_masked_in_failures(endpoint):
    async with policy(endpoint, "quotes-headers", default_headers={"X-Gateway": "letters-1234"}) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model="m", input="Hello")
    assert "x-gateway" in caught.value.response.text
    assert "letters-1234" not in caught.value.response.text


@pytest.mark.parametrize(
    ("headers", "error"),
    [({"X Team": "secret-1"}, "'X Team' is not the name"), ({"X-Team": "secret-1\nHost: x"}, "value of X-Team has")],
)
def test_invalid_header_is_rejected_without_its_value(headers, error):
    with pytest.raises(ValueError, match=error) as caught:
        make_server(VLLMModel, base_url="http://x/v1", api_key="k", model="m", default_headers=headers)
    assert "secret-1" not in str(caught.value)

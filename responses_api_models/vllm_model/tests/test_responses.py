"""Requests that are forwarded to the endpoint's own `/v1/responses`, over real HTTP to a real endpoint."""

import json

import pytest

from nemo_gym.testing import make_server
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.tests.asking import HELLO, TOOL, complete, model_fails, policy
from responses_api_models.vllm_model.tests.asking import respond as respond_to

ON = {"uses_responses_api": True}


async def respond(endpoint, model, *, asked=None, **settings):
    return await respond_to(endpoint, model, asked=asked, **ON, **settings)


async def test_request_and_answer_are_forwarded(endpoint, seen):
    metadata = {"extra_body": json.dumps({"top_k": 7}), "note": "for the endpoint"}
    asked = {"tools": [TOOL], "temperature": 1.0, "max_output_tokens": 9, "metadata": metadata}
    settings = {
        "extra_body": {"top_k": 20, "min_p": 0.1, "temperature": 0.2},
        "sampling_overrides": {"max_tokens": 100},
        "chat_template_kwargs": {"enable_thinking": False},
        "default_headers": {"X-Team": "blue"},
    }
    response = await respond(endpoint, "echo", asked=asked, **settings)
    assert (response.output_text, response.usage.output_tokens) == ("echo: Hello", 7)
    assert response.something_new == {"kept": True}
    (request,) = seen()
    assert (request["path"], request["headers"]["x-team"]) == ("/v1/responses", "blue")
    assert request["body"] == {
        "model": "echo",
        "input": "Hello",
        "tools": [TOOL],
        "temperature": 1.0,
        "max_output_tokens": 100,
        "top_k": 7,
        "min_p": 0.1,
        "chat_template_kwargs": {"enable_thinking": False},
        "metadata": {"note": "for the endpoint"},
    }


async def test_items_of_an_answer_are_sent_back(endpoint, seen):
    async with policy(endpoint, "tool-call", replace_developer_role_with_system=True, **ON) as client:
        first = await client.responses.create(model="m", input=HELLO)
        output = {"type": "function_call_output", "call_id": "call_1", "output": "cold"}
        brief = {"role": "developer", "content": "Be brief."}
        items = [*HELLO, *(item.to_dict() for item in first.output), output, brief]
        await client.responses.create(model="m", input=items)
    sent = seen()[1]["body"]["input"]
    assert [item.get("type", item.get("role")) for item in sent] == [
        "user", "reasoning", "function_call", "function_call_output", "system"
    ]  # fmt: skip
    assert (sent[2]["call_id"], sent[2]["arguments"]) == ("call_1", '{"city": "Oslo"}')


async def test_chat_completions_are_unchanged(endpoint, seen):
    assert (await complete(endpoint, "echo", **ON)).choices[0].message.content == "echo: Hello"
    assert [request["path"] for request in seen()] == ["/v1/chat/completions"]


async def test_conversation_beyond_the_context_is_incomplete(endpoint):
    response = await respond(endpoint, "too-long")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text == ""


@pytest.mark.parametrize(
    ("model", "asked", "error"),
    [
        ("bad-request", {}, "/v1/responses answered 400.*Unknown field 'spam'"),
        ("status:404", {}, "/v1/responses answered 404"),
        ("not-json", {}, "not a JSON object"),
        ("no-choice", {}, "output"),
        ("failed:invalid_prompt", {}, "/v1/responses sent a response with the status 'failed': The model crashed"),
        ("echo", {"metadata": {"audio_data": "AAAA"}}, "metadata.audio_data cannot be sent to /responses"),
        ("echo", {"metadata": {"extra_body": "{"}}, r"metadata\.extra_body of the request is not JSON"),
    ],
)
async def test_failure_of_endpoint_or_request_is_reported(endpoint, model, asked, error):
    with model_fails(error):
        await respond(endpoint, model, asked=asked)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"uses_completions_api": True}, "uses_responses_api and uses_completions_api select different routes"),
        ({"return_token_id_information": True}, "returns no token ids. Leave out return_token_id_information"),
    ],
)
def test_contradicting_settings_are_rejected(settings, error):
    with pytest.raises(ValueError, match=error):
        make_server(VLLMModel, base_url="http://x/v1", api_key="k", model="m", **ON, **settings)

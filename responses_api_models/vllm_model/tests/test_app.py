"""The server for Chat Completions endpoints over real HTTP, in front of a real endpoint."""

import asyncio
import time

import httpx
import openai
import pytest

from responses_api_models.vllm_model.app import VLLMModelConfig
from responses_api_models.vllm_model.tests.asking import (
    HELLO,
    HELLO_IN_PARTS,
    TOOL,
    complete,
    model_fails,
    policy,
    respond,
    served,
)


async def test_text_is_returned_with_usage(endpoint):
    response = await respond(endpoint, "echo")
    assert response.output_text == "echo: Hello"
    assert response.status == "completed"
    assert response.usage.input_tokens_details.cached_tokens == 5
    assert response.usage.output_tokens_details.reasoning_tokens == 3


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("echo", ["message"]),
        ("tool-call", ["function_call"]),
        ("parallel", ["message", "function_call", "function_call"]),
        ("reasoning-content", ["reasoning", "message"]),
        ("reasoning", ["reasoning", "message"]),
        ("think", ["reasoning", "message"]),
        ("length", ["reasoning"]),
        ("refusal", ["message"]),
        ("no-usage", ["message"]),
    ],
)
async def test_openai_client_accepts_both_routes(endpoint, model, kinds):
    response = await respond(endpoint, model, asked={"tools": [TOOL]})
    assert [item.type for item in response.output] == kinds
    assert (await complete(endpoint, model)).model == model


async def test_unusual_message_form_is_accepted(endpoint):
    message, call = (await respond(endpoint, "odd")).output
    assert message.content[0].text == "in parts"
    assert (call.name, call.arguments, call.call_id[:5]) == ("f", '{"x":1}', "call_")


async def test_truncated_answer_is_incomplete(endpoint):
    response = await respond(endpoint, "length")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_context_overflow_gives_empty_incomplete_answer(endpoint):
    response = await respond(endpoint, "too-long")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text == ""
    assert [item.type for item in response.output] == ["message"]
    completion = await complete(endpoint, "too-long", return_token_id_information=True)
    assert (completion.choices[0].finish_reason, completion.choices[0].message.content) == ("length", "")


async def test_negative_rest_of_the_context_is_an_overflow(endpoint):
    assert (await respond(endpoint, "bad-limit:0")).incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("bad-request", "answered 400.*Unknown field 'spam'"),
        ("bad-limit:1", "answered 400.*'max_tokens' is not supported with this model"),
        ("bad-limit:2", "answered 400.*Invalid max_tokens value"),
        ("status:500", r"answered 500.*This is always 500.*\(tried 3 times\)"),
        ("not-json", "not a JSON object"),
        ("no-choice", "without choices"),
    ],
)
async def test_endpoint_failure_is_a_model_failure(endpoint, model, error):
    async def fails(call):
        with model_fails(error):
            await call(endpoint, model)

    await asyncio.gather(fails(respond), fails(complete))


async def test_unsupported_hosted_tool_is_named(endpoint, bodies):
    with model_fails("web_search"):
        await respond(endpoint, "echo", asked={"tools": [{"type": "web_search"}]})
    assert bodies() == []


async def test_briefly_busy_endpoint_is_retried(endpoint, bodies):
    assert (await respond(endpoint, "flaky:429:1:vllm")).output_text == "echo: Hello"
    assert len(bodies()) == 2


# Several endpoints


async def test_session_stays_with_one_endpoint(endpoint, another_endpoint, seen):
    urls = [f"{endpoint}/v1", f"{another_endpoint}/v1"]
    async with served(base_url=urls, api_key="k", model="echo") as url:
        for _ in range(24):
            async with httpx.AsyncClient(base_url=url, verify=False) as session:
                for _ in range(3):
                    (await session.post("/v1/responses", json={"input": "Hello"})).raise_for_status()
    async with httpx.AsyncClient(verify=False) as client:
        calls = [(await client.get(f"{address}/seen")).json() for address in (endpoint, another_endpoint)]
    counts = [sum(call["path"].endswith("/chat/completions") for call in each) for each in calls]
    assert sum(counts) == 72
    # Each session made its three calls to one endpoint. One endpoint gets no session with a chance of 1 in 8 million.
    assert [count % 3 for count in counts] == [0, 0]
    assert all(counts)


def test_at_least_one_address_is_required():
    with pytest.raises(ValueError, match="at least one address"):
        VLLMModelConfig(host="", port=0, entrypoint="", name="", base_url=[], api_key="k", model="m")


def test_key_never_appears_in_messages():
    settings = {"host": "", "port": 0, "entrypoint": "", "name": "", "api_key": "sk-secret", "model": "m"}
    assert "sk-secret" not in repr(VLLMModelConfig(base_url="http://x/v1", **settings))
    with pytest.raises(ValueError, match="model") as caught:
        VLLMModelConfig(base_url="http://x/v1", **{**settings, "model": None})
    assert "sk-secret" not in str(caught.value)


# Tokens


async def test_tokens_are_on_last_item_and_sent_back(endpoint, bodies):
    async with policy(endpoint, return_token_id_information=True) as client:
        first = await client.responses.create(model="m", input="Hi")
        last = first.output[-1]
        assert last.prompt_token_ids == [ord(char) for char in "Hi"]
        assert last.generation_token_ids == [ord(char) for char in "echo: Hi"]
        assert last.generation_log_probs == [-0.5] * len("echo: Hi")
        again = [{"role": "user", "content": "Hi"}, last.model_dump(), {"role": "user", "content": "Go on"}]
        await client.responses.create(model="m", input=again)
    names = ("logprobs", "top_logprobs", "return_tokens_as_token_ids", "return_token_ids")
    assert {name: bodies()[0][name] for name in names} == {
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
    }
    assert bodies()[1]["messages"][1] == {
        "role": "assistant",
        "content": "echo: Hi",
        "prompt_token_ids": last.prompt_token_ids,
        "generation_token_ids": last.generation_token_ids,
        "generation_log_probs": last.generation_log_probs,
    }


@pytest.mark.parametrize(("model", "reported"), [("echo", {}), ("weights:7", {"weight_version": "7"})])
async def test_time_and_weights_of_tokens_are_known(endpoint, model, reported):
    before = time.time()
    response = await respond(endpoint, model, return_token_id_information=True)
    (span,) = response.output[-1].sampling_spans
    assert span == {
        "tokens": len("echo: Hello"),
        "began_at": span["began_at"],
        "ended_at": span["ended_at"],
        **reported,
    }
    assert round(before, 6) <= span["began_at"] <= span["ended_at"] <= round(time.time(), 6)


async def test_tokens_in_the_message_are_used(endpoint):
    response = await respond(endpoint, "tokens-in-message", return_token_id_information=True)
    last = response.output[-1]
    assert (last.prompt_token_ids, last.generation_token_ids, last.generation_log_probs) == ([1], [2, 3], [-1.0, -2.0])


async def test_equal_copies_of_the_tokens_are_accepted(endpoint):
    response = await respond(endpoint, "tokens-twice", return_token_id_information=True)
    assert response.output[-1].generation_token_ids == [ord(char) for char in "echo: Hello"]


@pytest.mark.parametrize("copy", ["prompt_token_ids", "token_ids", "generation_token_ids", "generation_log_probs"])
async def test_contradicting_copies_of_the_tokens_fail(endpoint, copy):
    with model_fails(f"{copy} .* differ|differ from those in .*{copy}"):
        await respond(endpoint, f"tokens-twice:{copy}", return_token_id_information=True)


@pytest.mark.parametrize("settings", [{}, {"extra_body": {"n": 2}}])
async def test_several_answers_with_tokens_are_rejected(endpoint, bodies, settings):
    asked = {} if settings else {"metadata": {"extra_body": '{"n": 2}'}}
    with model_fails("n is 2, but return_token_id_information needs one answer per request"):
        await respond(endpoint, "echo", asked=asked, return_token_id_information=True, **settings)
    assert bodies() == []


async def test_prompt_tokens_of_older_engine_are_requested(endpoint, bodies):
    # The endpoint supports `return_token_ids` only for the model "echo".
    response = await respond(endpoint, "older", return_token_id_information=True)
    assert response.output[-1].prompt_token_ids == [ord(char) for char in "Hello"]
    assert response.output[-1].generation_token_ids == [ord(char) for char in "echo: Hello"]
    assert bodies()[1] == {"model": "older", "messages": HELLO_IN_PARTS}


async def test_tokens_appear_once_in_completions(endpoint):
    async with policy(endpoint, return_token_id_information=True) as client:
        completion = await client.chat.completions.create(model="m", messages=HELLO)
        asked_for = await client.chat.completions.create(model="m", messages=HELLO, logprobs=True)
    dump = completion.model_dump(exclude_none=True)
    assert dump["choices"][0]["message"]["generation_token_ids"] == [ord(char) for char in "echo: Hello"]
    assert "prompt_token_ids" not in dump
    assert not {"token_ids", "logprobs"} & set(dump["choices"][0])
    assert len(asked_for.choices[0].logprobs.content) == len("echo: Hello")


async def test_missing_tokens_are_reported(endpoint):
    with model_fails("0 generated ones and 0 log-probabilities"):
        await respond(endpoint, "tokens-missing", return_token_id_information=True)


async def test_endpoint_without_token_support_is_reported(endpoint):
    with model_fails("return_token_id_information is on, but the endpoint returned 0 prompt tokens"):
        await respond(endpoint, "no-tokenize", return_token_id_information=True)


async def test_number_of_tries_is_configurable(endpoint, bodies):
    async with policy(endpoint, "status:500", request_tries=1) as client:
        with pytest.raises(openai.InternalServerError, match="502"):
            await client.responses.create(model="ignored", input="Hello")
    assert len(bodies()) == 1

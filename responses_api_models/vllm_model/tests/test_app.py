"""The server for Chat Completions endpoints over real HTTP, in front of a real endpoint."""

import asyncio
import json
import re
from contextlib import asynccontextmanager, contextmanager

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig

HELLO = [{"role": "user", "content": "Hello"}]
HELLO_IN_PARTS = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": None}


@pytest.fixture
def bodies(seen):
    """Return the bodies that reached the endpoint during this test."""
    return lambda: [request["body"] for request in seen()]


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


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("bad-request", "answered 400.*Unknown field 'spam'"),
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


async def test_reasoning_is_sent_back_and_shown_in_completions(endpoint, bodies):
    async with policy(endpoint, "reasoning") as client:
        first = await client.responses.create(model="m", input="Hello")
        again = [{"role": "user", "content": "Hello"}, *(item.model_dump() for item in first.output)]
        await client.responses.create(model="m", input=[*again, {"role": "user", "content": "Sure?"}])
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    wrapped = "<think>Six times seven.</think>42"
    assert bodies()[1]["messages"][1] == {"role": "assistant", "content": wrapped}
    assert completion.choices[0].message.content == wrapped


@pytest.mark.parametrize(("model", "answer"), [("reasoning", "42"), ("think", "\n\n42")])
async def test_reasoning_is_text_without_parser(endpoint, bodies, model, answer):
    wrapped = f"<think>Six times seven.</think>{answer}"
    async with policy(endpoint, model, uses_reasoning_parser=False) as client:
        first = await client.responses.create(model="m", input="Hello")
        assert ([item.type for item in first.output], first.output_text) == (["message"], wrapped)
        reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
        await client.responses.create(model="m", input=[*HELLO, reasoning, *first.output, *HELLO])
    assert bodies()[1]["messages"][1] == {"role": "assistant", "content": f"<think>Hm.</think>{wrapped}"}


INTERLEAVED = [
    *HELLO,
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "First."}]},
    {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "cold"},
    {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "Then."}]},
    {"type": "function_call", "call_id": "b", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "b", "output": "warm"},
    {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "Last."}]},
    {"role": "assistant", "content": "Mild."},
    *HELLO,
]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"sends_reasoning": "reasoning"}, "reasoning"),
        ({"sends_reasoning": "reasoning_content"}, "reasoning_content"),
        ({"preserve_reasoning_in_assistant_content": False}, "reasoning_content"),
        ({"preserve_reasoning_in_assistant_content": False, "sends_reasoning": "reasoning"}, "reasoning"),
    ],
)
async def test_interleaved_reasoning_is_sent_in_its_field(endpoint, bodies, settings, field):
    await respond(endpoint, "echo", asked={"input": INTERLEAVED}, **settings)
    said = [message for message in bodies()[0]["messages"] if message["role"] == "assistant"]
    calls = [[call["id"] for call in message.get("tool_calls", [])] for message in said]
    assert [message[field] for message in said] == ["First.", "Then.", "Last."]
    assert ([message["content"] for message in said], calls) == ([None, None, "Mild."], [["a"], ["b"], []])
    assert [message["role"] for message in bodies()[0]["messages"]] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user"
    ]  # fmt: skip


async def test_reasoning_between_calls_stays_in_content(endpoint, bodies):
    settings = {"preserve_reasoning_in_assistant_content": True, "sends_reasoning": "none"}
    await respond(endpoint, "echo", asked={"input": INTERLEAVED}, **settings)
    said = [message["content"] for message in bodies()[0]["messages"] if message["role"] == "assistant"]
    assert said == ["<think>First.</think>", "<think>Then.</think>", "<think>Last.</think>Mild."]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("think", [{"content": "<think>Hm.</think>\n\nYes"}, {"content": "Yes", "reasoning_content": "Hm."}]),
        ("reasoning", [{"content": "\n\nYes", "reasoning": "Hm."}, {"content": "Yes", "reasoning": "Hm."}]),
        ("none", [{"content": "\n\nYes"}, {"content": "Yes"}]),
    ],
)
async def test_reasoning_of_chat_messages_gets_its_form(endpoint, bodies, form, expected):
    said = [{"content": "<think>Hm.</think>\n\nYes"}, {"content": "Yes", "reasoning_content": "Hm."}]
    messages = [{"role": "assistant", **message} for message in said]
    await complete(endpoint, "echo", asked={"messages": [*HELLO, *messages, *HELLO]}, sends_reasoning=form)
    assert bodies()[0]["messages"][1:3] == [{"role": "assistant", **message} for message in expected]


async def test_sequential_reasoning_may_be_rejected(endpoint, bodies):
    hm = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    once, twice = [*HELLO, hm, *HELLO, hm, *HELLO], [*HELLO, hm, hm, *HELLO]
    await respond(endpoint, "echo", asked={"input": twice})
    for parser in (True, False):
        settings = {"sequential_reasoning_allowed": False, "uses_reasoning_parser": parser}
        await respond(endpoint, "echo", asked={"input": once}, **settings)
        with model_fails(r"messages\[1\] has 2 pieces of reasoning.*sequential_reasoning_allowed"):
            await respond(endpoint, "echo", asked={"input": twice}, **settings)
    assert len(bodies()) == 3


async def test_reasoning_stays_separate_without_parser(endpoint, bodies):
    async with policy(endpoint, "reasoning", uses_reasoning_parser=False) as client:
        completion = await client.chat.completions.create(model="m", messages=HELLO)
    assert completion.choices[0].message.content == "42"
    assert completion.choices[0].message.reasoning == "Six times seven."


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


# Several endpoints


async def test_session_stays_with_one_endpoint(endpoint, another_endpoint, seen):
    urls = [f"{endpoint}/v1", f"{another_endpoint}/v1"]
    async with served(base_url=urls, api_key="k", model="echo") as url:
        for _ in range(24):
            async with httpx.AsyncClient(base_url=url, verify=False) as session:
                for _ in range(3):
                    (await session.post("/v1/responses", json={"input": "Hello"})).raise_for_status()
    async with httpx.AsyncClient(verify=False) as client:
        counts = [len((await client.get(f"{address}/seen")).json()) for address in (endpoint, another_endpoint)]
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


# Headers


async def test_default_headers_are_sent_on_both_routes(endpoint, seen):
    headers = {"X-Team": "blue", "authorization": "Basic c2VjcmV0LXRleHQ="}
    await respond(endpoint, "older", default_headers=headers, return_token_id_information=True)
    await complete(endpoint, "echo", default_headers=headers)
    assert [request["path"] for request in seen()] == ["/v1/chat/completions", "/tokenize", "/v1/chat/completions"]
    sent = [(request["headers"]["x-team"], request["headers"]["authorization"]) for request in seen()]
    assert sent == [("blue", "Basic c2VjcmV0LXRleHQ=")] * 3


async def test_secret_header_is_masked_in_failures(endpoint):
    async with policy(endpoint, "tells-headers", default_headers={"X-Gateway": "letters-1234"}) as client:
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


async def test_alternative_tokens_are_never_requested(endpoint, bodies):
    await respond(endpoint, "echo", asked={"top_logprobs": 5}, return_token_id_information=True)
    assert bodies()[0]["top_logprobs"] == 0


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

"""The forwarding server over real HTTP, in front of a real endpoint."""

import re
from contextlib import asynccontextmanager

import httpx
import openai
import orjson
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from nemo_gym import Conversation, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.testing import make_server, on_a_port, serving
from responses_api_models.openai_model.app import SimpleModelServer

INPUT_AT_HEADER = "x-nemo-gym-input-at"
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": None}


@asynccontextmanager
async def policy(endpoint, model="echo", **settings):
    """Yield the openai package's client for a server in front of the endpoint."""
    settings = {
        "openai_base_url": f"{endpoint}/v1",
        "openai_api_key": "sk-very-secret",
        "openai_model": model,
        **settings,
    }
    async with (
        on_a_port(make_server(SimpleModelServer, **settings)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.fixture
def bodies(seen):
    """Return the bodies that reached the endpoint during this test."""
    return lambda: [request["body"] for request in seen()]


async def test_response_is_returned_unchanged(endpoint):
    async with policy(endpoint) as client:
        response = await client.responses.create(model="ignored", input="Hello", tools=[TOOL])
    Response.model_validate(response.model_dump(warnings=False))
    assert (response.id, response.model, response.output_text) == ("resp_1", "echo", "echo: Hello")
    assert response.usage.input_tokens_details.cached_tokens == 5
    assert response.something_new == {"kept": True}


async def test_tool_call_is_returned(endpoint):
    async with policy(endpoint, "tool-call") as client:
        response = await client.responses.create(model="ignored", input="Hello", tools=[TOOL])
    Response.model_validate(response.model_dump(warnings=False))
    assert [item.type for item in response.output] == ["reasoning", "function_call"]


async def test_completion_is_returned(endpoint):
    async with policy(endpoint) as client:
        completion = await client.chat.completions.create(model="ignored", messages=HELLO)
    ChatCompletion.model_validate(completion.model_dump(warnings=False))
    assert completion.choices[0].message.content == "echo: Hello"


async def test_request_overrides_server_settings(endpoint, bodies):
    async with policy(endpoint, extra_body={"temperature": 0.2, "top_k": 5}) as client:
        await client.responses.create(model="ignored", input=HELLO, temperature=1.0, stream=False)
        await client.chat.completions.create(model="ignored", messages=HELLO, stream=False)
    assert bodies() == [
        {
            "model": "echo",
            "temperature": 1.0,
            "top_k": 5,
            "input": HELLO,
        },
        {"model": "echo", "temperature": 0.2, "top_k": 5, "messages": HELLO},
    ]


async def test_output_items_can_be_sent_back(endpoint, bodies):
    async with policy(endpoint, "tool-call") as client:
        first = await client.responses.create(model="ignored", input=HELLO)
        answer = {"type": "function_call_output", "call_id": "call_1", "output": "cold"}
        # The openai client itself sends items without the fields that were not set.
        again = [*HELLO, *(item.to_dict() for item in first.output), answer]
        await client.responses.create(model="ignored", input=again)
    reasoning, call, output = bodies()[1]["input"][1:]
    assert reasoning == {"type": "reasoning", "id": "rs_1", "summary": []}
    assert (call["type"], call["call_id"], call["name"]) == ("function_call", "call_1", "get_weather")
    assert output == answer


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("status:500", r"policy_model: .* answered 500.*\(tried 3 times\)"),
        ("tells-key", r"answered 401.*\[redacted\]"),
        ("not-json", "not a JSON object"),
    ],
)
async def test_endpoint_failure_is_a_model_failure(endpoint, model, error):
    async with policy(endpoint, model) as client:
        with pytest.raises(openai.InternalServerError) as of_responses:
            await client.responses.create(model="ignored", input="Hello")
        with pytest.raises(openai.InternalServerError) as of_chat:
            await client.chat.completions.create(model="ignored", messages=HELLO)
    for caught in (of_responses, of_chat):
        assert caught.value.status_code == 502
        problem = caught.value.response.json()
        assert problem["failure_class"] == "model_failed"
        assert re.search(error, problem["detail"])
        assert "sk-very-secret" not in caught.value.response.text


@pytest.mark.parametrize("status", [429, 503])
async def test_busy_endpoint_is_reported_as_overloaded(endpoint, status):
    async with policy(endpoint, f"status:{status}") as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model="ignored", input="Hello")
    assert caught.value.status_code == 503
    problem = caught.value.response.json()
    assert (problem["failure_class"], problem["tier"]) == ("overloaded", "model")
    assert re.search(rf"policy_model: .* answered {status}.*\(tried 3 times\)", problem["detail"])


async def test_briefly_busy_endpoint_is_retried(endpoint, bodies):
    async with policy(endpoint, "flaky:429:1:openai") as client:
        assert (await client.responses.create(model="ignored", input="Hello")).output_text == "echo: Hello"
    assert len(bodies()) == 2


async def test_number_of_tries_is_configurable(endpoint, bodies):
    async with policy(endpoint, "status:500", request_tries=1) as client:
        with pytest.raises(openai.InternalServerError, match="502"):
            await client.responses.create(model="ignored", input="Hello")
    assert len(bodies()) == 1


ITEMS = [
    {"role": "user", "content": "Hello"},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "[{"}'},
    {"type": "function_call_output", "call_id": "c", "output": 'a "quoted" ]} answer'},
]


async def ask(client, text, input_at):
    return await client.post(
        "/v1/responses", content=text, headers={"content-type": "application/json", INPUT_AT_HEADER: str(input_at)}
    )


@asynccontextmanager
async def asked_directly(endpoint, cls=SimpleModelServer, **settings):
    server = make_server(
        cls,
        **settings,
        name="policy_model",
        openai_base_url=f"{endpoint}/v1",
        openai_api_key="sk-very-secret",
        openai_model="echo",
    )
    async with serving(server) as client:
        yield client


def written(items=ITEMS, **params):
    """Return a request as an agent writes it, and the position of its input."""
    beginning = orjson.dumps(params)[:-1] + (b"," if params else b"") + b'"input":'
    return beginning + orjson.dumps(items) + b"}", len(beginning)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.5, "tools": [TOOL], "user": None}])
async def test_marked_input_is_forwarded_unchanged(endpoint, bodies, params):
    async with asked_directly(endpoint) as client:
        replied = await ask(client, *written(**params))
    assert replied.status_code == 200
    sent = {name: value for name, value in params.items() if value is not None}
    (body,) = bodies()
    assert body == {**sent, "model": "echo", "input": ITEMS, **({"tools": body["tools"]} if "tools" in sent else {})}


async def test_reasoning_is_left_out_of_marked_input(endpoint, bodies):
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    async with asked_directly(endpoint, drop_input_reasoning_items=True) as client:
        assert (await ask(client, *written([thought, *ITEMS]))).status_code == 200
    assert bodies()[0]["input"] == ITEMS


async def test_reply_to_marked_input_is_forwarded_unchanged(endpoint):
    async with asked_directly(endpoint) as client:
        replied, checked = (
            (await ask(client, *written())).json(),
            (await client.post("/v1/responses", json={"input": ITEMS})).json(),
        )
    assert NeMoGymResponse.model_validate(replied) == NeMoGymResponse.model_validate(checked)
    # Only parsing fills in the fields that the endpoint left out.
    assert checked["incomplete_details"] is None
    assert "incomplete_details" not in replied


@pytest.mark.parametrize(
    ("code", "failure"),
    [("server_error", (502, "model_failed")), ("rate_limit_exceeded", (503, "overloaded"))],
)
async def test_failed_response_fails_the_rollout(endpoint, code, failure):
    settings = {"openai_base_url": f"{endpoint}/v1", "openai_api_key": "k", "openai_model": f"failed:{code}"}
    server = make_server(SimpleModelServer, **settings, request_tries=1)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        replies = [await ask(client, *written()), await client.post("/v1/responses", json={"input": ITEMS})]
    for reply in replies:
        problem = reply.json()
        assert (reply.status_code, problem["failure_class"]) == failure
        assert f"sent a response with the status 'failed': The model crashed. (code {code})" in problem["detail"]


async def test_repeated_params_are_not_mixed_up(endpoint, bodies):
    async with asked_directly(endpoint) as client:
        for temperature in (0.5, 0.7, 0.5):
            assert (await ask(client, *written(temperature=temperature))).status_code == 200
    assert [body["temperature"] for body in bodies()] == [0.5, 0.7, 0.5]


@pytest.mark.parametrize("shift", [-1000, -9, -1, 1, 10**6])
async def test_wrong_input_position_falls_back_to_parsing(endpoint, bodies, shift):
    text, input_at = written(temperature=0.5)
    async with asked_directly(endpoint) as client:
        replied = await ask(client, text, input_at + shift)
    assert replied.status_code == 200
    assert bodies()[0]["input"] == orjson.loads(text)["input"]


@pytest.mark.parametrize("params", [{"spam": 1}, {"temperature": "hot"}])
async def test_params_are_validated_with_marked_input(endpoint, params):
    async with asked_directly(endpoint) as client:
        replied = await ask(client, *written(**params))
    (problem,) = replied.json()["detail"]
    assert (replied.status_code, problem["loc"]) == (422, ["body", *params])


class Reading(SimpleModelServer):
    """A server whose own `responses` method reads the input."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        assert [item.type for item in body.input] == ["message", "function_call", "function_call_output"]
        return await super().responses(body)


async def test_subclass_override_gets_parsed_items(endpoint, bodies):
    async with asked_directly(endpoint, Reading) as client:
        replied = await ask(client, *written())
    assert (replied.status_code, len(bodies()[0]["input"])) == (200, 3)


async def test_conversation_resends_items_without_empty_fields(endpoint, bodies):
    settings = {"openai_base_url": f"{endpoint}/v1", "openai_api_key": "sk-very-secret", "openai_model": "tool-call"}
    conversation = Conversation(params={"input": "Hello", "temperature": 0.5})
    policy_model = make_server(SimpleModelServer, name="policy_model", **settings)
    caller = make_server(SimpleModelServer, name="caller", servers=[policy_model], **settings)
    async with serving(caller):
        for _ in range(2):
            await conversation.ask(caller.server_client, "policy_model")
    first, second = bodies()
    hello = {"role": "user", "content": "Hello"}
    assert first == {"temperature": 0.5, "model": "tool-call", "input": [hello]}
    assert second["input"][0] == hello
    assert [item["type"] for item in second["input"][1:]] == ["reasoning", "function_call"]
    assert all(value is not None for item in second["input"] for value in item.values())
    assert len(conversation.said) == 4


async def test_model_sees_agent_changes_to_conversation(endpoint, bodies):
    settings = {"openai_base_url": f"{endpoint}/v1", "openai_api_key": "sk-very-secret", "openai_model": "tool-call"}
    conversation = Conversation(params={"input": "Hello"})
    policy_model = make_server(SimpleModelServer, name="policy_model", **settings)
    caller = make_server(SimpleModelServer, name="caller", servers=[policy_model], **settings)
    async with serving(caller):
        await conversation.ask(caller.server_client, "policy_model")
        conversation.response["output"][0]["id"] = "rs_changed"
        await conversation.ask(caller.server_client, "policy_model")
        del conversation.response["output"][:-1]
        conversation.hear("Go on.")
        await conversation.ask(caller.server_client, "policy_model")
    second, third = (body["input"] for body in bodies()[1:])
    assert [item.get("id") for item in second[1:]] == ["rs_changed", second[2].get("id")]
    assert [item.get("type") for item in third] == [None, "function_call", "message"]
    assert third[-1]["content"] == "Go on."

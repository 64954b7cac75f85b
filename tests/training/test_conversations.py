"""Tests of a rollout's chat messages, compared with the requests of a model server."""

from __future__ import annotations

import json

import openai
import pytest

from nemo_gym.errors import DataError
from nemo_gym.schemas.row import Row
from nemo_gym.testing import call, heard, make_server, on_a_port, reply
from nemo_gym.training.conversations import Unusable, conversation_of
from responses_api_models.vllm_model.app import VLLMModel
from tests.each_case import each_case

TOOL = {"type": "function", "name": "get_weather", "description": "Look it up.", "parameters": {"type": "object"}}
ASKED = [
    {"role": "system", "content": "You know the weather."},
    {"role": "user", "content": [{"type": "input_text", "text": "How is it in Oslo?"}]},
]
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}


def rollout(*items, asked=ASKED, **response):
    answered = reply(*items).model_dump(mode="json")
    return Row(
        {
            "responses_create_params": {"input": asked, "tools": [TOOL], "parallel_tool_calls": False},
            "response": answered | response,
            "reward": 1.0,
        }
    )


def conversation(row, *, keeps_reasoning=True, arguments_as_text=False):
    return conversation_of(row, keeps_reasoning=keeps_reasoning, arguments_as_text=arguments_as_text)


def rendered(messages, tools):
    """Write a conversation as a chat template does: contents as text, calls as JSON, and a list of tools."""
    lines = [f"tools: {json.dumps(tools)}"]
    for message in messages:
        content = message["content"]
        text = content if isinstance(content, str) else "\n".join(part["text"] for part in content or ())
        lines.append(f"<{message['role']}>{text}")
        for each in message.get("tool_calls", ()):
            arguments = each["function"]["arguments"]
            # An engine parses the arguments of earlier calls before it applies the template.
            given = json.loads(arguments) if isinstance(arguments, str) else arguments
            lines.append(json.dumps({"name": each["function"]["name"], "arguments": given}))
    return "\n".join(lines)


async def answered(endpoint, model, items):
    """Return a model server's response, which it gets from the endpoint over HTTP."""
    server = make_server(VLLMModel, base_url=f"{endpoint}/v1", api_key="none", model=model)
    async with on_a_port(server) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        response = await client.responses.create(model="x", input=items, tools=[TOOL], parallel_tool_calls=False)
        return response.model_dump(mode="json", exclude_unset=True, warnings=False)


async def test_messages_equal_the_endpoints_last_request(endpoint, seen):
    thought = await answered(endpoint, "reasoning-content", ASKED)
    first = await answered(endpoint, "parallel", ASKED)
    said = [*thought["output"][:1], *first["output"]]
    said += [
        {"type": "function_call_output", "call_id": item["call_id"], "output": f"result of {item['name']}"}
        for item in said
        if item["type"] == "function_call"
    ]
    last = await answered(endpoint, "echo", [*ASKED, *said])
    row = rollout().with_fields({"response": {**last, "output": [*said, *last["output"]]}})
    found = conversation(row)

    request = seen()[-1]["body"]
    answer = {"role": "assistant", "content": last["output"][-1]["content"][0]["text"]}
    whole = found.prompt + found.completion
    assert rendered(whole, found.tools) == rendered([*request["messages"], answer], request["tools"])
    assert "Six times seven." in rendered(whole, found.tools)
    without = conversation(row, keeps_reasoning=False)
    assert "Six times seven." not in rendered(without.prompt + without.completion, without.tools)
    as_text = conversation(row, arguments_as_text=True)
    assert as_text.completion == [*request["messages"][len(ASKED) :], answer]
    assert as_text.parallel_tool_calls is False


def test_arguments_are_objects_or_the_policys_text():
    written = '{"city":"Oslo",  "id": 123456789012345678901234567890}'
    item = call("get_weather").model_copy(update={"arguments": written})
    of = {as_text: conversation(rollout(item), arguments_as_text=as_text).completion for as_text in (True, False)}
    functions = {as_text: message["tool_calls"][0]["function"] for as_text, (message,) in of.items()}
    assert functions[True] == {"name": "get_weather", "arguments": written}
    assert functions[False]["arguments"] == {"city": "Oslo", "id": 123456789012345678901234567890}


def test_token_ids_do_not_get_into_messages():
    row = rollout("Cold.")
    row.fields["response"]["output"][0] |= TOKENS
    assert conversation(row).completion == [{"role": "assistant", "content": "Cold."}]


def test_completion_begins_and_ends_with_the_policy():
    found = conversation(rollout(heard("The door is shut."), "open", heard("It opens."), "enter", heard("You won.")))
    assert [message["role"] for message in found.prompt] == ["system", "user", "user"]
    assert found.prompt[-1]["content"] == "The door is shut."
    assert [message["content"] for message in found.completion] == ["open", "It opens.", "enter"]


def test_instructions_and_requested_tools_are_part_of_it():
    row = rollout("Hello.", tools=[{**TOOL, "strict": None}])
    row.fields["responses_create_params"] = {"input": "Hi", "instructions": "Be brief.", "temperature": 1.0}
    found = conversation(row)
    assert found.prompt == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    function = {name: value for name, value in TOOL.items() if name != "type"}
    assert (found.tools, found.parallel_tool_calls) == ([{"type": "function", "function": function}], None)


def test_refusals_are_content_except_for_openai():
    refusal = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    row = rollout(output=[refusal])
    assert conversation(row).completion == [{"role": "assistant", "content": "No."}]
    as_text = conversation(row, arguments_as_text=True)
    assert as_text.completion == [{"role": "assistant", "content": "", "refusal": "No."}]


@each_case(
    ("row", "reason"),
    [
        (rollout("Cold.", status="incomplete"), "incomplete answer"),
        (rollout("Cold.", incomplete_details={"reason": "max_output_tokens"}), "incomplete answer"),
        (rollout(), "no answer"),
        (rollout(""), "no answer"),
        (rollout(heard("Really?")), "no answer"),
        (rollout(call("f").model_copy(update={"arguments": "{"})), "tool call with invalid arguments"),
        (rollout(call("f").model_copy(update={"arguments": "[1]"})), "tool call with invalid arguments"),
        (rollout(call("f").model_copy(update={"arguments": '{"x": NaN}'})), "tool call with invalid arguments"),
        (rollout(call("f").model_copy(update={"arguments": "[" * 10**5})), "tool call with invalid arguments"),
        (
            rollout("Cold.", output=[{"type": "web_search_call", "id": "w"}]),
            "unsupported: the conversation has an item of type 'web_search_call'",
        ),
    ],
)
def test_unusable_rollouts_have_a_reason(row, reason):
    with pytest.raises(Unusable) as caught:
        conversation(row)
    assert str(caught.value).startswith(reason)


@each_case(
    ("row", "message"),
    [
        (Row({"responses_create_params": {"input": "Hi"}}), "not a rollout: 'response' is missing"),
        (Row({"response": {"output": []}}), "not a rollout: 'responses_create_params' is missing"),
        (rollout(asked=[{"role": "judge", "content": "x"}]), "responses_create_params.input"),
        (rollout(output=[{"type": "function_call", "name": "f"}]), "response.output"),
    ],
)
def test_malformed_rows_are_rejected_with_their_field(row, message):
    with pytest.raises(DataError, match=message) as caught:
        conversation(row)
    assert not isinstance(caught.value, Unusable)

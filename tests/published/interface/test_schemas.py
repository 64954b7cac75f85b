"""Items, responses and usages in the published style."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from nemo_gym import openai_utils
from tests.each_case import each_case
from tests.published.interface.plain_servers import RESPONSE

UNTAGGED = {
    openai_utils.NeMoGymEasyInputMessage: {"content": "hi", "role": "user"},
    openai_utils.NeMoGymMessage: {
        "content": [{"text": "hi", "type": "input_text"}], "role": "user", "status": "completed",
    },
}  # fmt: skip
TAGGED = {
    openai_utils.NeMoGymResponseOutputMessage: {"id": "m", "content": []},
    openai_utils.NeMoGymResponseOutputText: {"annotations": [], "text": "hi"},
    openai_utils.NeMoGymResponseOutputRefusal: {"refusal": "no"},
    openai_utils.NeMoGymResponseInputText: {"text": "hi"},
    openai_utils.NeMoGymSummary: {"text": "hm"},
    openai_utils.NeMoGymResponseReasoningItem: {"id": "rs", "summary": []},
    openai_utils.NeMoGymResponseFunctionToolCall: {"arguments": "{}", "call_id": "c", "name": "f"},
    openai_utils.NeMoGymFunctionCallOutput: {"call_id": "c", "output": "done"},
    openai_utils.NeMoGymChatCompletionMessageToolCall: {"id": "c", "function": {"name": "f", "arguments": "{}"}},
}


@each_case("kind", TAGGED)
def test_item_type_is_sent_even_if_unset(kind):
    item = kind(**TAGGED[kind])
    sent = item.model_dump(exclude_unset=True)
    assert sent["type"] == kind.model_fields["type"].default
    assert TAGGED[kind].items() <= sent.items()
    # It round-trips, and unknown fields are kept.
    assert kind.model_validate({**sent, "something_new": 1}).model_dump()["something_new"] == 1
    assert kind.model_validate(sent) == item
    with pytest.raises(ValidationError):
        kind.model_validate({**sent, "type": "something_else"})


@each_case("kind", UNTAGGED)
def test_message_type_is_sent_only_if_set(kind):
    given = UNTAGGED[kind]
    params = openai_utils.NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": [given]})
    assert type(params.input[0]) is kind
    assert params.model_dump(exclude_unset=True) == {"input": [given]}
    typed = {"input": [{**given, "type": "message"}]}
    params = openai_utils.NeMoGymResponseCreateParamsNonStreaming.model_validate(typed)
    assert params.model_dump(exclude_unset=True) == typed
    # An output needs it.
    response = openai_utils.NeMoGymResponse.model_validate({**RESPONSE, "output": [kind(**given)]})
    assert response.model_dump(exclude_unset=True)["output"] == [{**given, "type": "message"}]


@each_case(
    ("item", "field"),
    [
        ({"type": "message", "role": "assistant", "id": "m", "content": [], "status": "completed"}, "phase"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "namespace"),
    ],
)
def test_optional_field_of_item_survives(item, field):
    given = {**item, field: "final_answer"}
    for kept in (item, given):
        response = openai_utils.NeMoGymResponse.model_validate({**RESPONSE, "output": [kept]})
        params = openai_utils.NeMoGymResponseCreateParamsNonStreaming(input=response.output)
        (sent,) = params.model_dump(exclude_unset=True)["input"]
        assert sent == kept
        assert (field in response.model_dump()["output"][0]) == (field in kept)
        assert getattr(response.output[0], field) == kept.get(field)


def test_repeated_settings_support_attribute_access():
    sent = {
        "id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "reasoning": {"effort": "low", "new": {"a": 1}},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
    }  # fmt: skip
    response = openai_utils.NeMoGymResponse.model_validate(sent)
    assert (response.reasoning.effort, response.text.verbosity) == ("low", "low")
    assert response.model_dump(exclude_unset=True) == sent
    assert openai_utils.NeMoGymResponse.model_validate_json(response.model_dump_json()).reasoning == response.reasoning


def test_response_accepts_parts_of_the_openai_package():
    responses = pytest.importorskip("openai.types.responses")
    response = openai_utils.NeMoGymResponse(
        **{
            **RESPONSE,
            "tools": [responses.FunctionTool(name="add", type="function", parameters={}, strict=True)],
            "incomplete_details": responses.response.IncompleteDetails(reason="max_output_tokens"),
            "error": responses.ResponseError(code="server_error", message="gone"),
        }
    )
    assert (response.tools[0].name, response.error.message) == ("add", "gone")
    assert response.incomplete_details.reason == "max_output_tokens"


def test_status_of_reasoning_is_ignored():
    item = openai_utils.NeMoGymResponseReasoningItem(id="rs", summary=[], status="completed")
    assert "status" not in item.model_dump()
    response = openai_utils.NeMoGymResponse.model_validate(
        {**RESPONSE, "output": [{"type": "reasoning", "id": "rs", "summary": [], "status": None}]}
    )
    assert "status" not in response.model_dump()["output"][0]


def usage_of(tokens: int, cached: int | None) -> openai_utils.NeMoGymResponseUsage:
    return openai_utils.NeMoGymResponseUsage(
        input_tokens=tokens,
        input_tokens_details=openai_utils.NeMoGymResponseInputTokensDetails(cached_tokens=cached),
        output_tokens=1,
        output_tokens_details=openai_utils.NeMoGymResponseOutputTokensDetails(reasoning_tokens=None),
        total_tokens=tokens + 1,
    )


def test_usages_with_unknown_counts_are_added():
    add = openai_utils.accumulate_response_usage
    first, second = usage_of(10, 4), usage_of(20, None)
    assert add(None, None) is None
    assert add(first, None) == first
    assert add(None, second) == second
    both = add(first, second)
    assert (both.input_tokens, both.output_tokens, both.total_tokens) == (30, 2, 32)
    assert (both.input_tokens_details.cached_tokens, both.output_tokens_details.reasoning_tokens) == (4, None)
    assert first.input_tokens == 10
    assert openai_utils.NeMoGymResponseUsage.sum_from_list([first, second, first]).total_tokens == 43

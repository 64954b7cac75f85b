"""`nemo_gym.responses_converter`, as used by published model servers and their tests."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest

from nemo_gym import responses_converter
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChatCompletionMessageForTraining,
    NeMoGymChoice,
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseInputText,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseOutputText,
    NeMoGymResponseReasoningItem,
    NeMoGymResponseUsage,
    NeMoGymSummary,
)
from nemo_gym.responses_converter import (
    ResponsesConverter,
    VLLMConverter,
    VLLMConverterResponsesToChatCompletionsState,
    _usage_detail,
    split_responses_input_output_items,
)
from tests.each_case import each_case

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
TOOL = {
    "type": "function",
    "name": "get_order",
    "description": "Look an order up.",
    "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
    "strict": True,
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_order", "arguments": '{"order_id": "7"}'}}


class FakeUUID:
    """A UUID replacement as in tests of published folders."""

    hex = "123"


@pytest.fixture
def converter() -> VLLMConverter:
    return VLLMConverter(return_token_id_information=False)


@pytest.fixture
def training() -> VLLMConverter:
    return VLLMConverter(return_token_id_information=True)


def text(words: str) -> NeMoGymResponseOutputText:
    return NeMoGymResponseOutputText(type="output_text", text=words, annotations=[], logprobs=None)


def said(words: str, id: str = "msg_123") -> NeMoGymResponseOutputMessage:
    return NeMoGymResponseOutputMessage(
        id=id, content=[text(words)], role="assistant", status="completed", type="message"
    )


def thought(words: str) -> NeMoGymResponseReasoningItem:
    summary = [NeMoGymSummary(text=words, type="summary_text")]
    return NeMoGymResponseReasoningItem(id="rs_123", summary=summary, type="reasoning")


def called() -> NeMoGymResponseFunctionToolCall:
    return NeMoGymResponseFunctionToolCall(
        id="call_1", call_id="call_1", name="get_order", arguments='{"order_id": "7"}', type="function_call",
        status="completed",
    )  # fmt: skip


def completion(**message: object) -> NeMoGymChatCompletion:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}
    return NeMoGymChatCompletion.model_validate(
        {
            "id": "chatcmpl", "object": "chat.completion", "created": 5, "model": "m", "choices": [choice],
            "usage": {
                "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
                "prompt_tokens_details": {"cached_tokens": 3},
            },
        }
    )  # fmt: skip


def dumped(items: list) -> list[dict]:
    return [item.model_dump(exclude_none=True) for item in items]


# Ids come from the module's `uuid4` at call time.


def test_ids_come_from_a_patched_uuid4(converter):
    with patch("nemo_gym.responses_converter.uuid4", return_value=FakeUUID()) as uuid4:
        response = converter.chat_completion_to_response(
            NeMoGymResponseCreateParamsNonStreaming(input="Hello"), completion(content="<think>Hm.</think>Hi.")
        )
    assert response.id == "resp_123"
    assert dumped(response.output) == dumped([thought("Hm."), said("Hi.")])
    assert uuid4.call_count == 3


def test_ids_come_from_a_monkeypatched_uuid4(converter, monkeypatch):
    monkeypatch.setattr("nemo_gym.responses_converter.uuid4", FakeUUID)
    assert dumped(converter.postprocess_assistant_message_dict({"role": "assistant", "content": "Hi."})) == dumped(
        [said("Hi.")]
    )


def test_ids_are_used_in_item_order(converter):
    numbers = count(1)
    with patch("nemo_gym.responses_converter.uuid4", side_effect=lambda: MagicMock(hex=f"u{next(numbers)}")):
        items = converter.postprocess_assistant_message_dict({"content": "<think>Hm.</think>Hi."})
    assert [item.id for item in items] == ["rs_u1", "msg_u2"]


def test_ids_are_unique_without_a_patch(converter):
    made = [converter.postprocess_assistant_message_dict({"content": "Hi."})[0].id for _ in range(3)]
    assert len(set(made)) == 3
    assert all(id.removeprefix("msg_").isalnum() and len(id) == len("msg_") + 32 for id in made)
    assert "uuid4" in vars(responses_converter)


# From Responses to Chat Completions


def test_request_becomes_chat_messages_with_think_tags(converter):
    params = NeMoGymResponseCreateParamsNonStreaming(
        input=[
            NeMoGymEasyInputMessage(role="developer", content="Be kind."),
            NeMoGymEasyInputMessage(
                role="user", content=[NeMoGymResponseInputText(type="input_text", text="Where is order 7?")]
            ),
            thought("I should look."),
            said("One moment."),
            called(),
            NeMoGymFunctionCallOutput(call_id="call_1", output='{"status": "shipped"}', type="function_call_output"),
            thought("It is on its way."),
            said("It is shipped."),
            NeMoGymEasyInputMessage(role="user", content="Thanks"),
        ],
        tools=[TOOL],
        tool_choice="auto",
        parallel_tool_calls=False,
        max_output_tokens=64,
        temperature=0.5,
        top_p=0.9,
    )
    asked = converter.responses_to_chat_completion_create_params(params)
    assert isinstance(asked, NeMoGymChatCompletionCreateParamsNonStreaming)
    fields = asked.model_dump(exclude_unset=True)
    assert fields.pop("messages") == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Where is order 7?"}]},
        {"role": "assistant", "content": "<think>I should look.</think>One moment.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"status": "shipped"}'},
        {"role": "assistant", "content": "<think>It is on its way.</think>It is shipped."},
        {"role": "user", "content": "Thanks"},
    ]
    function = {name: TOOL[name] for name in ("name", "description", "parameters")}
    assert fields.pop("tools") == [{"type": "function", "function": function}]
    assert {name: value for name, value in fields.items() if value is not None} == {
        "max_tokens": 64, "temperature": 0.5, "top_p": 0.9, "tool_choice": "auto", "parallel_tool_calls": False,
    }  # fmt: skip


def test_text_input_is_one_user_message(converter):
    params = NeMoGymResponseCreateParamsNonStreaming(input="Hello", instructions="Be brief.")
    asked = converter.responses_to_chat_completion_create_params(params)
    assert asked.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    ]


def test_tokens_are_passed_on_only_for_training(converter, training):
    message = NeMoGymResponseOutputMessageForTraining(**said("Hi.").model_dump(), **TOKENS)
    params = NeMoGymResponseCreateParamsNonStreaming(input=[message])
    plain = {"role": "assistant", "content": "Hi."}
    assert training.responses_to_chat_completion_create_params(params).messages == [{**plain, **TOKENS}]
    assert converter.responses_to_chat_completion_create_params(params).messages == [plain]


def test_state_buffers_the_assistant_turn_until_it_ends():
    state = VLLMConverterResponsesToChatCompletionsState(return_token_id_information=False)
    for item in (NeMoGymEasyInputMessage(role="user", content="Where?"), thought("Hm."), called()):
        state.add(item)
    assert state.messages == [{"role": "user", "content": "Where?"}]
    state.flush_assistant()
    assert state.messages[1:] == [{"role": "assistant", "content": "<think>Hm.</think>", "tool_calls": [CALL]}]
    state.flush_assistant()
    assert len(state.messages) == 2


# From Chat Completions to Responses


def test_completion_becomes_a_response_with_request_settings(converter):
    params = NeMoGymResponseCreateParamsNonStreaming(
        input="Where is it?", tools=[TOOL], temperature=0.5, max_output_tokens=64, metadata={"a": "b"}
    )
    with patch("nemo_gym.responses_converter.uuid4", return_value=FakeUUID()):
        response = converter.chat_completion_to_response(
            responses_create_params=params, chat_completion=completion(content="Wait.", tool_calls=[CALL])
        )
    assert isinstance(response, NeMoGymResponse)
    assert dumped(response.output) == dumped([said("Wait."), called()])
    assert (response.id, response.model, response.object, response.created_at) == ("resp_123", "m", "response", 5)
    assert (response.temperature, response.max_output_tokens, response.metadata) == (0.5, 64, {"a": "b"})
    assert (response.tool_choice, response.parallel_tool_calls, len(response.tools)) == ("auto", True, 1)
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (9, 4, 13)
    assert response.usage.input_tokens_details.cached_tokens == 3


@each_case(
    ("message", "kinds"),
    [
        ({"content": "Hi."}, ["message"]),
        ({"content": ""}, ["message"]),
        ({"content": None}, ["message"]),
        ({"content": "<think>Hm.</think>"}, ["reasoning"]),
        ({"content": None, "tool_calls": [CALL]}, ["function_call"]),
        ({"content": "<think>Hm.</think>Hi.", "tool_calls": [CALL]}, ["reasoning", "message", "function_call"]),
        ({"content": "Hi.", "reasoning_content": "Hm."}, ["reasoning", "message"]),
    ],
)
def test_response_always_has_an_item(converter, message, kinds):
    choice = NeMoGymChoice(
        index=0, finish_reason="stop", message=NeMoGymChatCompletionMessage(role="assistant", **message)
    )
    assert [item.type for item in converter.postprocess_chat_response(choice)] == kinds


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"content": "<think>Hm.</think>Hi."}, NeMoGymResponseOutputMessageForTraining),
        ({"content": "Hi.", "tool_calls": [CALL]}, NeMoGymResponseFunctionToolCallForTraining),
    ],
)
def test_tokens_are_on_the_last_item(training, converter, message, kind):
    choice = NeMoGymChoice(
        index=0,
        finish_reason="stop",
        message=NeMoGymChatCompletionMessageForTraining(role="assistant", **message, **TOKENS),
    )
    *before, last = training.postprocess_chat_response(choice)
    assert isinstance(last, kind)
    assert {name: getattr(last, name) for name in TOKENS} == TOKENS
    assert not any(hasattr(item, "prompt_token_ids") for item in before)
    assert not any("prompt_token_ids" in item.model_dump() for item in converter.postprocess_chat_response(choice))


def test_conversation_becomes_items_and_a_request(converter):
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "<think>Hm.</think>Wait.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
    ]
    with patch("nemo_gym.responses_converter.uuid4", return_value=FakeUUID()):
        items = converter.chat_completions_messages_to_responses_items(messages)
        params = converter.chat_completion_to_responses_create_params(
            NeMoGymChatCompletionCreateParamsNonStreaming(messages=messages, max_tokens=5, model="m")
        )
    assert dumped(items[2:5]) == dumped([thought("Hm."), said("Wait."), called()])
    assert [getattr(item, "role", item.type) for item in items[:2]] == ["system", "user"]
    assert (items[5].call_id, items[5].output) == ("call_1", "shipped")
    assert (params.input, params.max_output_tokens, params.model) == (items, 5, "m")


def test_conversion_round_trips(converter):
    messages = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "<think>Hm.</think>Wait.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
        {"role": "assistant", "content": "<think>Good.</think>It is shipped."},
    ]
    items = converter.chat_completions_messages_to_responses_items(messages)
    params = NeMoGymResponseCreateParamsNonStreaming(input=items)
    assert converter.responses_to_chat_completion_create_params(params).messages == messages


# Helpers


def test_reasoning_is_wrapped_and_unwrapped(converter):
    content = converter._wrap_reasoning_in_think_tags(["One.", "Two."]) + "Said."
    assert content == "<think>One.</think><think>Two.</think>Said."
    reasoning, rest = converter._extract_reasoning_from_content(content)
    assert (reasoning, rest) == (["One.", "Two."], "Said.")


def test_both_names_are_the_same_class():
    assert VLLMConverter is ResponsesConverter


def test_fields_of_the_converter_may_be_assigned():
    made = ResponsesConverter(return_token_id_information=False)
    assert made.uses_reasoning_parser is True
    made.return_token_id_information, made.uses_reasoning_parser = True, False
    [item] = made.postprocess_assistant_message_dict({"content": "<think>Hm.</think>Hi.", **TOKENS})
    assert (item.content[0].text, item.prompt_token_ids) == ("<think>Hm.</think>Hi.", [1, 2])
    assert made.model_copy(update={"uses_reasoning_parser": True}).uses_reasoning_parser


def test_input_is_split_from_assistant_output():
    given = [NeMoGymEasyInputMessage(role="user", content="Where?")]
    done = [thought("Hm."), called(), NeMoGymFunctionCallOutput(call_id="call_1", output="shipped"), said("Shipped.")]
    assert split_responses_input_output_items([*given, *done]) == (given, done)
    assert split_responses_input_output_items(given) == (given, [])


USAGE = {
    "prompt_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": True},
    "completion_tokens_details": None,
    "cached_input_tokens": 4,
    "cache_read_input_tokens": 5,
    "reasoning_output_tokens": 0,
    "negative": -1,
}


@each_case("usage", [USAGE, NeMoGymResponseUsage(**USAGE), SimpleNamespace(**USAGE)])
@each_case(
    ("asked", "found"),
    [
        (("prompt_tokens_details", "cached_tokens"), 3),
        (("prompt_tokens_details", "cached_tokens", "cached_input_tokens"), 3),
        (("prompt_tokens_details", "missing", "missing_too", "cache_read_input_tokens", "cached_input_tokens"), 5),
        (("completion_tokens_details", "reasoning_tokens", "reasoning_output_tokens"), 0),
        (("completion_tokens_details", "reasoning_tokens"), None),
        (("prompt_tokens_details", "audio_tokens"), None),
        (("missing", "cached_tokens", "negative"), None),
    ],
)
def test_count_is_found_in_its_group_or_alias(usage, asked, found):
    assert _usage_detail(usage, *asked) == found


def test_count_of_no_usage_is_unknown():
    assert _usage_detail(None, "prompt_tokens_details", "cached_tokens", "cached_input_tokens") is None

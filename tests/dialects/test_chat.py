"""Responses to Chat Completions and back."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import Response as OpenAIResponse
from pydantic import TypeAdapter

from nemo_gym.dialects.chat import ResponsesConverter, split_responses_input_output_items
from nemo_gym.errors import DataError
from nemo_gym.schemas.chat import ChatCompletion, ChatCompletionCreateParams, Choice
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    FunctionToolCallForTraining,
    OutputMessage,
    OutputMessageForTraining,
    OutputText,
    ReasoningItem,
    ReasoningItemForTraining,
    Summary,
)
from nemo_gym.schemas.responses import ResponseCreateParams

CONVERTER = ResponsesConverter(return_token_id_information=False)
TRAINING = ResponsesConverter(return_token_id_information=True)
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
WEATHER_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CHAT_MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])


def said(text, **fields):
    return OutputMessage(id="msg_1", content=[OutputText(text=text)], **fields)


def thought(*texts):
    return ReasoningItem(id="rs_1", summary=[Summary(text=text) for text in texts])


def called(call_id="call_1", **fields):
    return FunctionToolCall(call_id=call_id, name="get_weather", arguments='{"city": "Oslo"}', **fields)


def answered(call_id="call_1", output="cold"):
    return FunctionCallOutput(call_id=call_id, output=output)


def asked(text="Hello"):
    return EasyInputMessage(role="user", content=text)


def messages(*items, converter=CONVERTER):
    return converter.responses_to_chat_completion_create_params(ResponseCreateParams(input=list(items))).messages


CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}


def completion(finish_reason="stop", **message):
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}],
    }


# From Responses to Chat Completions


def test_a_bare_string_is_a_users_message():
    params = CONVERTER.responses_to_chat_completion_create_params(ResponseCreateParams(input="Hello"))
    assert params.model_dump(exclude_unset=True) == {"messages": [{"role": "user", "content": "Hello"}]}


def test_what_the_assistant_did_at_one_go_is_one_message():
    assert messages(asked(), thought("a", "b"), said("text"), called("1"), called("2"), answered("1"), asked("?")) == [
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": "<think>a</think><think>b</think>text",
            "tool_calls": [{**CALL, "id": "1"}, {**CALL, "id": "2"}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "cold"},
        {"role": "user", "content": "?"},
    ]


@pytest.mark.parametrize(
    ("items", "contents"),
    [
        ([said("a"), said("b")], ["a", "b"]),
        ([said("a"), thought("t"), said("b")], ["a", "<think>t</think>b"]),
        ([called(), said("a")], ["a"]),
        ([thought("t"), called(), thought("u"), called("2")], ["<think>t</think><think>u</think>"]),
        ([said("a"), called(), thought("u"), called("2")], ["<think>u</think>a"]),
        ([said("")], [""]),
        ([called()], [None]),
    ],
)
def test_a_turn_ends_where_the_next_text_begins_but_never_between_a_call_and_its_answer(items, contents):
    assert [message["content"] for message in messages(*items)] == contents


def test_reasoning_is_left_out_for_an_endpoint_without_it():
    plain = ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=False)
    assert messages(thought("t"), said("a"), asked(), thought("u"), asked(), converter=plain) == [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": "Hello"},
    ]


def test_reasoning_that_stands_in_content_is_kept():
    item = ReasoningItem(id="rs_1", summary=[], content=[{"type": "reasoning_text", "text": "t"}])
    assert messages(item, said("a"))[0]["content"] == "<think>t</think>a"


@pytest.mark.parametrize(
    ("part", "chat_part"),
    [
        ({"type": "input_text", "text": "a"}, {"type": "text", "text": "a"}),
        (
            {"type": "input_image", "image_url": "data:x", "detail": "low"},
            {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
        ),
        (
            {"type": "input_file", "file_data": "data:x", "filename": "a.pdf"},
            {"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}},
        ),
        ({"type": "input_video", "video_url": "data:v"}, {"type": "video_url", "video_url": {"url": "data:v"}}),
    ],
)
def test_parts_take_their_other_names_and_come_back(part, chat_part):
    item = EasyInputMessage.model_validate({"role": "user", "content": [part]})
    assert messages(item) == [{"role": "user", "content": [chat_part]}]
    [back] = CONVERTER.chat_completions_messages_to_responses_items([{"role": "user", "content": [chat_part]}])
    assert back.model_dump(exclude_unset=True) == item.model_dump(exclude_unset=True)


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("cold", "cold"),
        ([{"type": "input_text", "text": "cold"}], [{"type": "text", "text": "cold"}]),
        ([{"degrees": -3}], [{"type": "text", "text": '{"degrees":-3}'}]),
    ],
)
def test_a_tools_output_may_be_text_parts_or_anything(output, content):
    assert messages(called(), answered(output=output))[-1]["content"] == content


def test_parameters_take_their_other_names():
    params = CONVERTER.responses_to_chat_completion_create_params(
        ResponseCreateParams(
            input="Hello",
            instructions="Be brief.",
            max_output_tokens=100,
            temperature=0.5,
            top_p=0.9,
            reasoning={"effort": "low"},
            text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
            tools=[WEATHER_TOOL],
            tool_choice={"type": "function", "name": "get_weather"},
            parallel_tool_calls=False,
            top_logprobs=2,
        )
    )
    assert params.model_dump(exclude_unset=True) == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "tools": [{"type": "function", "function": {k: v for k, v in WEATHER_TOOL.items() if k != "type"}}],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "logprobs": True,
        "top_logprobs": 2,
    }


def test_a_tool_choice_is_not_sent_without_tools():
    params = ResponseCreateParams(input="Hello", tool_choice="auto", parallel_tool_calls=True)
    sent = CONVERTER.responses_to_chat_completion_create_params(params)
    assert sent.model_fields_set == {"messages"}


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"input": "a", "tools": [{"type": "web_search"}]}, "web_search"),
        ({"input": [{"type": "web_search_call", "id": "w", "status": "completed"}]}, "web_search_call"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "image_url",
        ),
    ],
)
def test_what_chat_completions_cannot_say_is_named(params, told):
    with pytest.raises(DataError, match=told):
        CONVERTER.responses_to_chat_completion_create_params(ResponseCreateParams.model_validate(params))


# From Chat Completions to Responses


@pytest.mark.parametrize(
    "message",
    [
        {"content": "42", "reasoning_content": "Six times seven."},
        {"content": "42", "reasoning": "Six times seven."},
        {"content": "42", "reasoning_content": "Six times seven.", "reasoning": "Six times seven."},
        {"content": "<think>Six times seven.</think>42"},
        {"content": [{"type": "text", "text": "<think>Six times seven.</think>42"}]},
    ],
)
def test_reasoning_becomes_an_item_wherever_it_stood(message):
    reasoning, answer = CONVERTER.postprocess_assistant_message_dict({"role": "assistant", **message})
    assert (reasoning.type, reasoning.text) == ("reasoning", "Six times seven.")
    assert (answer.type, answer.text) == ("message", "42")
    assert reasoning.id.startswith("rs_")
    assert answer.id.startswith("msg_")


def test_a_tag_in_the_text_stays_text_where_the_endpoint_told_the_reasoning_apart():
    items = CONVERTER.postprocess_assistant_message_dict({"content": "write <think>x</think>", "reasoning": "r"})
    assert items[-1].text == "write <think>x</think>"


def test_calls_keep_their_ids_and_their_order():
    message = {"content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]}
    items = CONVERTER.postprocess_chat_response(Choice(index=0, finish_reason="tool_calls", message=message))
    assert [(item.type, item.call_id, item.name) for item in items] == [
        ("function_call", "call_1", "get_weather"),
        ("function_call", "call_2", "get_weather"),
    ]


def test_a_silent_answer_is_an_empty_message():
    response = CONVERTER.chat_completion_to_response(completion(content=None), ResponseCreateParams(input="Hello"))
    assert [item.type for item in response.output] == ["message"]
    assert response.last_text == ""


@pytest.mark.parametrize(
    ("finish_reason", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("something_new", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_why_it_stopped_is_told(finish_reason, status, reason):
    response = CONVERTER.chat_completion_to_response(
        completion(finish_reason, content="so far"), ResponseCreateParams(input="Hello")
    )
    assert response.status == response.output[-1].status == status
    assert (response.incomplete_details and response.incomplete_details.reason) == reason


def test_reasoning_that_was_cut_off_is_not_taken_for_an_answer():
    response = CONVERTER.chat_completion_to_response(
        completion("length", content="<think>it may be \\boxed{3}"), ResponseCreateParams(input="Hello")
    )
    assert [item.type for item in response.output] == ["reasoning"]
    assert response.last_text == ""


def test_usage_keeps_its_details():
    answer = completion(content="a") | {
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": None,
        }
    }
    usage = CONVERTER.chat_completion_to_response(answer, ResponseCreateParams(input="Hello")).usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens) == (11, 5)
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens, usage.total_tokens) == (7, 0, 18)


def test_the_openai_client_can_read_a_response_with_everything_in_it():
    answer = completion("length", content="<think>t</think>text", refusal="no", tool_calls=[CALL], **TOKENS) | {
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    }
    answer["choices"][0]["logprobs"] = {
        "content": [{"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}]
    }
    params = ResponseCreateParams(
        input="Hello",
        tools=[{"type": "function", "name": "f"}, WEATHER_TOOL],
        metadata={"a": "b"},
        text={"format": {"type": "text"}},
        reasoning={"effort": "low"},
        temperature=0.5,
        top_logprobs=1,
    )
    response = TRAINING.chat_completion_to_response(ChatCompletion.model_validate(answer), params)
    for dump in (response.model_dump(), response.model_dump(exclude_unset=True)):
        read = OpenAIResponse.model_validate(dump)
        assert read.output_text == "text"
        assert [item.type for item in read.output] == ["reasoning", "message", "function_call"]


def test_an_endpoint_may_leave_out_a_calls_id_and_send_its_arguments_parsed():
    call = {"function": {"name": "f", "arguments": {"x": 1}}}
    [item] = CONVERTER.postprocess_assistant_message_dict({"content": None, "tool_calls": [call]})
    assert item.call_id.startswith("call_")
    assert item.arguments == '{"x":1}'


def test_ids_can_be_made_by_someone_else():
    numbers = itertools.count()
    converter = ResponsesConverter(False, new_id=lambda prefix: f"{prefix}_{next(numbers)}")
    response = converter.chat_completion_to_response(
        completion(content="<think>t</think>a"), ResponseCreateParams(input="Hello")
    )
    assert sorted([response.id, *(item.id for item in response.output)]) == ["msg_2", "resp_0", "rs_1"]


# Tokens


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"content": "a", "reasoning": "r"}, OutputMessageForTraining),
        ({"content": "a", "tool_calls": [CALL]}, FunctionToolCallForTraining),
        ({"content": None, "reasoning": "r"}, ReasoningItemForTraining),
    ],
)
def test_tokens_stand_on_the_last_item_and_travel_back_in_the_message(message, kind):
    items = TRAINING.postprocess_assistant_message_dict({"role": "assistant", **message, **TOKENS})
    assert isinstance(items[-1], kind)
    assert [hasattr(item, "prompt_token_ids") for item in items[:-1]] == [False] * (len(items) - 1)
    [sent] = messages(*items, converter=TRAINING)
    assert {name: sent[name] for name in TOKENS} == TOKENS
    assert "prompt_token_ids" not in messages(*items)[0]


def test_tokens_are_dropped_where_nobody_asked_for_them():
    [item] = CONVERTER.postprocess_assistant_message_dict({"content": "a", **TOKENS})
    assert not hasattr(item, "prompt_token_ids")


def test_experts_travel_with_the_tokens():
    [item] = TRAINING.postprocess_assistant_message_dict({"content": "a", **TOKENS, "routed_experts": [[1]]})
    assert item.routed_experts == [[1]]


# There and back


text = st.text(min_size=1, max_size=20).filter(lambda t: "think>" not in t)
name = st.from_regex(r"\A[a-z_]{1,8}\Z")


@st.composite
def turns(draw):
    """What one role does at one go, in the order in which a message tells it."""
    if draw(st.booleans()):
        return [EasyInputMessage(role=draw(st.sampled_from(["user", "system", "developer"])), content=draw(text))]
    items = [thought(*draw(st.lists(text.filter(str.strip), min_size=1, max_size=2)))] if draw(st.booleans()) else []
    items += [said(draw(text))] if draw(st.booleans()) else []
    calls = draw(st.lists(st.tuples(name, text, text), max_size=3, unique_by=lambda call: call[0]))
    items += [FunctionToolCall(call_id=i, name="f", arguments=arguments) for i, arguments, _ in calls]
    return items + [FunctionCallOutput(call_id=i, output=output) for i, _, output in calls]


def essence(items):
    """All that is said, thought, called and answered."""
    for item in items:
        match item:
            case EasyInputMessage():
                yield item.role, item.content
            case OutputMessage():
                yield "said", item.text
            case FunctionToolCall():
                yield "called", item.call_id, item.name, item.arguments
            case FunctionCallOutput():
                yield "answered", item.call_id, item.output
            case ReasoningItem():
                yield "thought", *(part.text for part in item.summary)


@given(st.lists(turns(), max_size=6))
def test_a_conversation_survives_the_way_there_and_back(conversation):
    items = [item for turn in conversation for item in turn]
    # Thoughts that nothing follows run into those of the next turn: no message would hold them apart.
    merged = [b for a, b in itertools.pairwise(items) if isinstance(a, ReasoningItem) and isinstance(b, ReasoningItem)]
    if merged:
        return
    sent = messages(*items)
    CHAT_MESSAGES.validate_python(sent)
    back = CONVERTER.chat_completions_messages_to_responses_items(sent)
    assert list(essence(back)) == list(essence(items))


def test_a_chat_request_becomes_a_request_for_responses():
    chat = ChatCompletionCreateParams(
        messages=[{"role": "user", "content": "Hello"}],
        max_completion_tokens=10,
        tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        temperature=0.0,
    )
    params = CONVERTER.chat_completion_to_responses_create_params(chat)
    assert params.model_dump(exclude_unset=True) == {
        "input": [{"role": "user", "content": "Hello", "type": "message"}],
        "max_output_tokens": 10,
        "tools": [{"type": "function", "name": "f", "parameters": None, "strict": None}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        "temperature": 0.0,
    }


def test_a_conversation_is_split_where_the_assistant_first_acts():
    given_items, done = [asked(), asked("Now")], [thought("t"), said("a"), asked("more")]
    assert split_responses_input_output_items([*given_items, *done]) == (given_items, done)
    assert split_responses_input_output_items(given_items) == (given_items, [])

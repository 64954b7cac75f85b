"""Tests of the conversion from Responses to Chat Completions."""

import pytest

from nemo_gym.dialects.chat import ResponsesConverter
from nemo_gym.errors import DataError
from nemo_gym.schemas.items import EasyInputMessage, InputText, ReasoningItem
from nemo_gym.schemas.responses import ResponseCreateParams
from tests.dialects.chat.conversing import (
    CALL,
    CONVERTER,
    STRICT,
    WEATHER_TOOL,
    answered,
    asked,
    called,
    messages,
    said,
    thought,
)
from tests.each_case import each_case

HELLO = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]


def told(content, role="system"):
    return EasyInputMessage(role=role, content=content)


def test_bare_string_is_a_user_message():
    params = CONVERTER.responses_to_chat_completion_create_params(ResponseCreateParams(input="Hello"))
    assert params.model_dump(exclude_unset=True) == {"messages": HELLO}
    assert params.parallel_tool_calls is True


@each_case(
    ("instructions", "items", "sent"),
    [
        ("Be brief.", [asked()], ["Be brief.", "Hello"]),
        (None, [told("Be kind.", "developer"), asked()], ["Be kind.", "Hello"]),
        ("Be brief.", [told("a"), told("b", "developer"), asked(), told("c")], ["Be brief.\n\na\n\nb", "Hello", "c"]),
        (None, [told([InputText(text="a"), InputText(text="b")]), told("")], ["a\n\nb"]),
        (None, [told("")], []),
    ],
)
def test_leading_instructions_are_one_system_message(instructions, items, sent):
    params = ResponseCreateParams(input=items, instructions=instructions)
    messages = CONVERTER.responses_to_chat_completion_create_params(params).messages
    assert [message["content"] for message in messages] == sent
    assert [message["role"] for message in messages] == ["system", "user", "system"][: len(sent)]


def test_message_in_parts_keeps_its_parts():
    message = EasyInputMessage(role="user", content=[InputText(text="a"), InputText(text="b")])
    assert messages(message)[0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_required_tool_choice_needs_tools():
    with pytest.raises(ValueError, match="tool_choice is 'required', but the request has no tools"):
        CONVERTER.responses_to_chat_completion_create_params(ResponseCreateParams(input="a", tool_choice="required"))


def test_assistant_turn_becomes_one_message():
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


@each_case(
    ("items", "contents"),
    [
        ([said("a"), said("b")], ["ab"]),
        ([thought("t"), said("a"), said("b"), called(), called("2")], ["<think>t</think>ab"]),
        ([said("a"), thought("t"), said("b")], ["<think>t</think>ab"]),
        ([called(), said("a")], ["a"]),
        ([thought("t"), called(), thought("u"), called("2")], ["<think>t</think><think>u</think>"]),
        ([said("a"), called(), thought("u"), called("2")], ["<think>u</think>a"]),
        ([said("")], [""]),
        ([called()], [None]),
    ],
)
def test_adjacent_assistant_items_become_one_message(items, contents):
    assert [message["content"] for message in messages(*items)] == contents


@each_case("uses_reasoning_parser", [True, False])
def test_reasoning_is_always_sent(uses_reasoning_parser):
    converter = ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=uses_reasoning_parser)
    assert messages(thought("t"), said("a"), asked(), thought("u"), asked(), converter=converter) == [
        {"role": "assistant", "content": "<think>t</think>a"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "<think>u</think>"},
        {"role": "user", "content": "Hello"},
    ]


def test_reasoning_in_content_is_kept():
    item = ReasoningItem(id="rs_1", summary=[], content=[{"type": "reasoning_text", "text": "t"}])
    assert messages(item, said("a"))[0]["content"] == "<think>t</think>a"


@each_case(
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
def test_parts_survive_round_trip(part, chat_part):
    item = EasyInputMessage.model_validate({"role": "user", "content": [part]})
    assert messages(item) == [{"role": "user", "content": [chat_part]}]
    [back] = CONVERTER.chat_completions_messages_to_responses_items([{"role": "user", "content": [chat_part]}])
    assert back.model_dump(exclude_unset=True) == item.model_dump(exclude_unset=True)


@each_case(
    ("output", "content"),
    [
        ("cold", "cold"),
        ([{"type": "input_text", "text": "cold"}], [{"type": "text", "text": "cold"}]),
        ([{"degrees": -3}], [{"type": "text", "text": '{"degrees":-3}'}]),
    ],
)
def test_tool_output_may_be_text_parts_or_anything(output, content):
    assert messages(called(), answered(output=output))[-1]["content"] == content


def test_images_of_tools_follow_in_user_message():
    image = {"type": "input_image", "image_url": "data:x"}
    sent = {"type": "image_url", "image_url": {"url": "data:x", "detail": "auto"}}
    text = {"type": "input_text", "text": "cold"}
    outputs = (answered("1", output=[text, image]), answered("2", output=[image]), answered("3"))
    expected = [
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "cold"}]},
        {"role": "tool", "tool_call_id": "2", "content": "The output is in the next user message."},
        {"role": "tool", "tool_call_id": "3", "content": "cold"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Output of the tool call 1:"},
                sent,
                {"type": "text", "text": "Output of the tool call 2:"},
                sent,
            ],
        },
    ]
    calls = (called("1"), called("2"), called("3"))
    assert messages(asked(), *calls, *outputs)[2:] == expected
    assert messages(asked(), *calls, *outputs, called("4"), answered("4"))[2:6] == expected
    assert messages(asked(), *calls, *outputs, asked("?"))[2:] == [*expected, {"role": "user", "content": "?"}]


@each_case(
    ("part", "named"),
    [
        ({"type": "input_image", "image_url": "data:x"}, "input_image"),
        ({"type": "input_file", "file_id": "f"}, "input_file"),
        ({"degrees": -3}, "None"),
    ],
)
def test_tool_output_is_text_by_default(part, named):
    with pytest.raises(NotImplementedError, match=f"a part of type '?{named}"):
        messages(called(), answered(output=[part]), converter=STRICT)


def test_parameters_are_renamed():
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
        "messages": [{"role": "system", "content": "Be brief."}, *HELLO],
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "tools": [
            {"type": "function", "function": {k: WEATHER_TOOL[k] for k in ("name", "description", "parameters")}}
        ],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "logprobs": True,
        "top_logprobs": 2,
    }


def test_tool_choice_is_not_sent_without_tools():
    params = ResponseCreateParams(input="Hello", tool_choice="auto", parallel_tool_calls=True)
    sent = CONVERTER.responses_to_chat_completion_create_params(params)
    assert sent.model_fields_set == {"messages"}


IMAGE_BY_ID = [{"type": "input_image", "file_id": "f"}]
IMAGE = [{"type": "input_image", "image_url": "data:x"}]


@each_case(
    ("params", "error", "named"),
    [
        ({"input": "a", "tools": [{"type": "web_search"}]}, NotImplementedError, "web_search"),
        ({"input": [{"type": "web_search_call", "id": "w"}]}, NotImplementedError, "web_search_call"),
        ({"input": [{"role": "user", "content": IMAGE_BY_ID}]}, DataError, "image_url"),
        (
            {"input": [{"role": "system", "content": IMAGE}]},
            DataError,
            "system message has a part of type 'image_url'",
        ),
    ],
)
def test_unsupported_content_is_named(params, error, named):
    with pytest.raises(error, match=named):
        CONVERTER.responses_to_chat_completion_create_params(ResponseCreateParams.model_validate(params))

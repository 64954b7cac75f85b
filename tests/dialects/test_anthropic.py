"""Tests of the conversion between Responses and Anthropic Messages."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.dialects.anthropic import message_of_response, response_params_of_messages
from nemo_gym.errors import DataError
from nemo_gym.schemas.anthropic import AnthropicCreateParams
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    OutputMessage,
    OutputRefusal,
    OutputText,
    ReasoningItem,
    Summary,
)
from nemo_gym.schemas.responses import IncompleteDetails, Response, ResponseUsage
from tests.each_case import each_case

PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}
TOOL = {"name": "get_weather", "description": "Tell the weather.", "input_schema": {"type": "object"}}


def params(*messages, **fields):
    return response_params_of_messages(AnthropicCreateParams.model_validate({"messages": messages, **fields}))


def items(*blocks, role="user"):
    """Return the items of one turn with these blocks, as they are sent."""
    asked = params({"role": role, "content": list(blocks)})
    return asked.model_dump(exclude_unset=True)["input"]


def text(text):
    return {"type": "text", "text": text}


def response(*output, **fields):
    return Response(id="resp_1", created_at=1700000000, model="m", output=list(output), **fields)


def blocks(*output):
    return message_of_response(response(*output)).model_dump()["content"]


def said(*texts):
    return OutputMessage(id="msg_1", content=[OutputText(text=each) for each in texts])


def called(arguments='{"city": "Oslo"}'):
    return FunctionToolCall(call_id="call_1", name="get_weather", arguments=arguments)


# From Messages to Responses


def test_request_fields_are_renamed():
    asked = params(
        {"role": "user", "content": "Hello"},
        model="m",
        max_tokens=64,
        temperature=0.5,
        top_p=0.9,
        system="Be brief.",
        tools=[TOOL],
        stop_sequences=["\n"],
        top_k=3,
        metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        something_new=True,
    )
    assert asked.model_dump(exclude_unset=True) == {
        "input": [{"role": "user", "content": "Hello"}],
        "instructions": "Be brief.",
        "model": "m",
        "max_output_tokens": 64,
        "temperature": 0.5,
        "top_p": 0.9,
        "tools": [
            {
                "type": "function",
                "name": "get_weather",
                "description": "Tell the weather.",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
    }


def test_system_blocks_become_paragraphs():
    system = [{**text("You weigh words."), "cache_control": {"type": "ephemeral"}}, text(""), text("Be brief.")]
    assert params(system=system).instructions == "You weigh words.\n\nBe brief."


@each_case(
    ("choice", "tool_choice", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "any"}, "required", None),
        ({"type": "none"}, "none", None),
        ({"type": "tool", "name": "get_weather"}, {"type": "function", "name": "get_weather"}, None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
    ],
)
def test_tool_choice_keeps_its_meaning(choice, tool_choice, parallel):
    asked = params(tools=[TOOL], tool_choice=choice)
    assert asked.tool_choice == tool_choice
    assert ("parallel_tool_calls" in asked.model_fields_set) == (parallel is not None)
    assert parallel is None or asked.parallel_tool_calls is parallel


def test_answer_schema_is_converted():
    schema = {"type": "object", "properties": {}}
    asked = params(output_config={"format": {"type": "json_schema", "schema": schema}, "effort": "low"})
    assert asked.text == {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}


def test_single_text_is_string_and_several_are_parts():
    assert items(text("Hello")) == [{"role": "user", "content": "Hello"}]
    (message,) = items(text("What is"), text(""), {"type": "image", "source": PIXEL})
    assert message["content"] == [
        {"type": "input_text", "text": "What is"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0="},
    ]


@each_case(
    ("block", "part"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "input_image", "image_url": "https://example.com/a.png"},
        ),
        (
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            {"type": "input_image", "file_id": "file_1"},
        ),
        (
            {
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            },
            {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
            {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        ),
        (
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            {"type": "input_file", "file_id": "file_1"},
        ),
        (
            {
                "type": "document",
                "title": "Notes",
                "source": {"type": "text", "media_type": "text/plain", "data": "One."},
            },
            {"type": "input_text", "text": "Notes\n\nOne."},
        ),
    ],
)
def test_images_and_documents_become_parts(block, part):
    (message,) = items(text("Look:"), block)
    assert message["content"][1] == part


def test_assistant_blocks_become_items_in_order():
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Tromsø", "days": 2}}
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "rs_1:gAAAA"}
    assert items(thinking, text("Let me see."), use, role="assistant") == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "gAAAA",
        },
        {"role": "assistant", "content": "Let me see."},
        {
            "type": "function_call",
            "call_id": "toolu_1",
            "name": "get_weather",
            "arguments": '{"city": "Tromsø", "days": 2}',
        },
    ]


@each_case(
    ("content", "output"),
    [
        ("cold", "cold"),
        (None, ""),
        ([text("cold"), text("and wet")], "cold\nand wet"),
        (
            [text("see"), {"type": "image", "source": PIXEL}, {"type": "tool_reference", "tool_name": "f"}],
            [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0="},
                {"type": "tool_reference", "tool_name": "f"},
            ],
        ),
    ],
)
def test_tool_result_is_followed_by_its_text(content, output):
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": False}
    assert items(result, text("Go on.")) == [
        {"type": "function_call_output", "call_id": "toolu_1", "output": output},
        {"role": "user", "content": "Go on."},
    ]


def test_foreign_signature_is_not_forwarded():
    first, second = items(
        {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCgIYAhIkd/+="},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3p"},
        role="assistant",
    )
    assert set(first) == set(second) == {"type", "id", "summary"}
    assert first["id"] != second["id"]
    assert [part["text"] for part in first["summary"]] == ["Hm."]


@each_case(
    ("fields", "expected"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'web_search': type 'web_search_"),
        ({"tool_choice": {"type": "tool"}}, "needs the 'name'"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}]}]},
            "'server_tool_use'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]}]},
            "the image source of type 'base64' needs",
        ),
    ],
)
def test_unsupported_content_is_rejected(fields, expected):
    with pytest.raises(DataError, match=expected):
        params(**fields)


# From Responses to Messages


def test_answer_is_converted_to_blocks():
    reasoning = ReasoningItem(id="rs_1", summary=[Summary(text="First."), Summary(text="Then.")])
    assert blocks(reasoning, said("Let me ", "", "see."), called()) == [
        {"type": "thinking", "thinking": "First.\nThen.", "signature": "rs_1:"},
        text("Let me "),
        text("see."),
        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}},
    ]


def test_reasoning_in_content_field_is_found():
    reasoning = ReasoningItem(id="rs_1", summary=[], content=[{"type": "reasoning_text", "text": "Hm."}])
    assert blocks(reasoning) == [{"type": "thinking", "thinking": "Hm.", "signature": "rs_1:"}]


@each_case(
    ("fields", "output", "reason"),
    [
        ({}, [said("Hi")], "end_turn"),
        ({}, [], "end_turn"),
        ({}, [said("Hi"), called()], "tool_use"),
        ({"incomplete_details": IncompleteDetails(reason="max_output_tokens")}, [called()], "max_tokens"),
        ({"incomplete_details": IncompleteDetails(reason="content_filter")}, [said("Hi")], "refusal"),
        ({}, [OutputMessage(id="msg_1", content=[OutputRefusal(refusal="No.")])], "refusal"),
    ],
)
def test_stop_reason_keeps_its_meaning(fields, output, reason):
    assert message_of_response(response(*output, **fields)).stop_reason == reason


def test_refusal_becomes_text_and_foreign_items_are_omitted():
    search = {"type": "web_search_call", "id": "ws_1"}
    refusing = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "No."}]}
    answered = Response.model_validate({**response().model_dump(), "output": [search, refusing]})
    assert message_of_response(answered).model_dump()["content"] == [text("No.")]


@each_case(
    ("usage", "expected"),
    [
        (None, (0, 0, 0)),
        (
            {"input_tokens": 11, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 7, "total_tokens": 18},
            (6, 5, 7),
        ),
        ({"input_tokens": 3, "input_tokens_details": {"cached_tokens": None}, "output_tokens": 1}, (3, 0, 1)),
    ],
)
def test_cached_tokens_are_counted_separately(usage, expected):
    counted = None if usage is None else ResponseUsage.model_validate(usage)
    usage = message_of_response(response(usage=counted)).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == expected


@each_case("arguments", ['{"city": "Os', "[1]", '"Oslo"', '{"x": NaN}', '{"x": "\\ud800"}', "[" * 100_000, "not JSON"])
def test_invalid_arguments_are_kept_as_text(arguments):
    (block,) = blocks(called(arguments))
    assert block["input"] == {"unreadable_arguments": arguments}
    (item,) = items(block, role="assistant")
    assert item["arguments"] == arguments


def test_missing_arguments_are_an_empty_object():
    assert blocks(called(""))[0]["input"] == {}


# There and back

TEXTS = st.text(min_size=1)
JSON_OBJECTS = st.dictionaries(
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda values: st.lists(values) | st.dictionaries(st.text(), values),
        max_leaves=3,
    ),
)
IDS = st.from_regex(r"[a-z]{2}_[a-z0-9]{1,8}", fullmatch=True)
REASONING = st.builds(
    lambda id_, paragraph, sealed: ReasoningItem(
        id=id_, summary=[Summary(text=each) for each in paragraph], encrypted_content=sealed
    ),
    IDS,
    st.lists(TEXTS, max_size=1),
    st.none() | st.from_regex(r"[A-Za-z0-9+/:]{1,20}", fullmatch=True),
)
CALLS = st.builds(
    lambda id_, name, arguments: FunctionToolCall(call_id=id_, name=name, arguments=arguments),
    IDS,
    TEXTS,
    JSON_OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False)),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(REASONING, max_size=2), st.lists(TEXTS, max_size=3), st.lists(CALLS, max_size=2))
def test_answer_survives_round_trip_through_client(reasoning, texts, calls):
    answered = message_of_response(response(*reasoning, *([said(*texts)] if texts else []), *calls))
    sent_back = params({"role": "assistant", "content": answered.model_dump(mode="json")["content"]}).input
    assert [each for each in sent_back if isinstance(each, ReasoningItem)] == reasoning
    assert [each for each in sent_back if isinstance(each, FunctionToolCall)] == calls
    messages = [each.content for each in sent_back if isinstance(each, EasyInputMessage)]
    assert len(messages) == bool(texts)
    assert "".join(texts) == "".join(
        content if isinstance(content, str) else "".join(part.text for part in content) for content in messages
    )


@given(st.text(), IDS)
def test_tool_text_is_unchanged(output, call_id):
    result = {"type": "tool_result", "tool_use_id": call_id, "content": output}
    assert params({"role": "user", "content": [result]}).input == [FunctionCallOutput(call_id=call_id, output=output)]

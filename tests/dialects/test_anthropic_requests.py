"""Tests of the conversion of Responses requests to Messages, and of answers back."""

import orjson
import pytest
from openai.types.responses import Response as OpenAIResponse
from pydantic import ValidationError

from nemo_gym.dialects.anthropic import message_of_response, response_params_of_messages
from nemo_gym.dialects.anthropic_answers import response_of_message
from nemo_gym.dialects.anthropic_events import message_of_events
from nemo_gym.dialects.anthropic_requests import MessageSettings, message_params
from nemo_gym.errors import DataError, EndpointError
from nemo_gym.schemas.anthropic import AnthropicCreateParams
from nemo_gym.schemas.responses import ResponseCreateParams
from tests.each_case import each_case

SETTINGS = MessageSettings(max_tokens=1000)
HELLO = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}, "strict": True}
PIXEL = "data:image/png;base64,iVBORw0="
THINKING = {"type": "thinking", "thinking": "Six times seven.\n\nIt is 42.", "signature": "c2ln:bmF0dXJl=="}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl=="}
OMITTED = {"type": "thinking", "thinking": "", "signature": "b21pdHRlZA=="}
CALLS = [
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sea"}},
    {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": "sky"}},
]


def params(*items, **fields):
    return ResponseCreateParams.model_validate({"input": list(items), **fields})


def body(*items, settings=SETTINGS, **fields):
    return message_params(params(*items, **fields), settings)


def turns(*items):
    return body(*items)["messages"]


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def text(text):
    return {"type": "text", "text": text}


def answer(*content, stop_reason="end_turn", **fields):
    return {"id": "msg_1", "model": "m", "content": list(content), "stop_reason": stop_reason, **fields}


def answered(*content, asked=None, **fields):
    """Return the response to an answer, after the openai package has validated it."""
    response = response_of_message(answer(*content, **fields), asked or params(HELLO))
    OpenAIResponse.model_validate(response.model_dump())
    return response


def result(call_id, content):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def output(call_id, value):
    return {"type": "function_call_output", "call_id": call_id, "output": value}


# Requests


def test_plain_text_has_a_limit_and_nothing_else():
    assert message_params(ResponseCreateParams(input="Hello"), SETTINGS) == {
        "messages": [user(text("Hello"))],
        "max_tokens": 1000,
    }


def test_sampling_parameters_keep_their_values():
    asked = body(HELLO, temperature=0.5, top_p=0.9, max_output_tokens=7, user="me")
    assert {name: asked[name] for name in ("temperature", "top_p", "max_tokens", "metadata")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "metadata": {"user_id": "me"},
    }


def test_leading_system_messages_become_the_system_prompt():
    later = {"role": "developer", "content": "Be brief."}
    asked = body(
        {"role": "system", "content": "You are kind."}, later, HELLO, later, instructions="Answer.", temperature=1
    )
    assert asked["system"] == "Answer.\n\nYou are kind.\n\nBe brief."
    assert asked["messages"] == [user(text("Hello")), {"role": "system", "content": [text("Be brief.")]}]


PARTS = [
    ({"type": "input_text", "text": "Look"}, text("Look")),
    (
        {"type": "input_image", "image_url": PIXEL},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}},
    ),
    (
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ),
    ({"type": "input_image", "file_id": "file_1"}, {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
    (
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            "title": "a.pdf",
        },
    ),
    (
        {"type": "input_file", "file_data": "data:text/plain;base64,SGVsbG8="},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hello"}},
    ),
    (
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
    ),
]


@each_case(("part", "block"), PARTS)
def test_each_part_becomes_a_block(part, block):
    assert turns({"role": "user", "content": [part]}) == [user(block)]
    assert turns({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, output("c", [part]))[
        1
    ] == user(result("c", [block]))


def test_parallel_calls_share_a_turn_with_results_first():
    calls = [
        {"type": "function_call", "call_id": f"call:{n}", "name": "look", "arguments": f'{{"at": {n}}}'}
        for n in (1, 2)
    ]
    said = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]}
    outputs = [output("call:1", "blue"), {"role": "user", "content": "Go on"}, output("call:2", [{"depth": 1}, "wet"])]
    assert turns(HELLO, said, *calls, *outputs)[1:] == [
        {
            "role": "assistant",
            "content": [
                text("Hm."),
                {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}},
                {"type": "tool_use", "id": "call_2", "name": "look", "input": {"at": 2}},
            ],
        },
        user(result("call_1", "blue"), result("call_2", [text('{"depth":1}'), text("wet")]), text("Go on")),
    ]


@each_case(
    ("fields", "choice"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, None),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": {"type": "function", "name": "look"}}, {"type": "tool", "name": "look"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_each_tool_choice_has_its_equivalent(fields, choice):
    assert body(HELLO, tools=[TOOL], **fields).get("tool_choice") == choice


def test_strict_is_sent_only_if_configured():
    bare = {"type": "function", "name": "wait", "parameters": None}
    look = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
    assert body(HELLO, tools=[TOOL, bare])["tools"] == [look, {"name": "wait", "input_schema": look["input_schema"]}]
    asked = body(HELLO, tools=[TOOL], settings=MessageSettings(1000, strict_tools=True))
    assert asked["tools"] == [{**look, "strict": True}]


@each_case(
    ("effort", "budgets", "fields"),
    [
        ("high", None, {"output_config": {"effort": "high"}}),
        ("minimal", None, {"output_config": {"effort": "low"}}),
        ("none", None, {"thinking": {"type": "disabled"}}),
        ("low", {"low": 2048}, {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
    ],
)
def test_each_effort_has_its_equivalent(effort, budgets, fields):
    asked = body(HELLO, reasoning={"effort": effort}, settings=MessageSettings(1000, thinking_budgets=budgets))
    assert {name: asked[name] for name in asked.keys() & {"output_config", "thinking"}} == fields


def test_schema_of_an_answer_is_sent_next_to_the_effort():
    form = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}
    asked = body(HELLO, text={"format": form}, reasoning={"effort": "low"})
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    assert asked["output_config"] == {"effort": "low", "format": schema}


@each_case(
    ("item", "fields", "error"),
    [
        (HELLO, {"tools": [{"type": "web_search"}]}, "a tool of type 'web_search'"),
        (HELLO, {"previous_response_id": "resp_1"}, "sets previous_response_id"),
        (HELLO, {"top_logprobs": 2}, "sets top_logprobs"),
        (HELLO, {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice of type 'allowed_tools'"),
        (HELLO, {"text": {"format": {"type": "json_object"}}}, "json_object"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, {}, "input_audio"),
        (
            {"role": "system", "content": [{"type": "input_image", "image_url": PIXEL}]},
            {},
            "system message has",
        ),
        ({"role": "user", "content": [{"type": "input_image"}]}, {}, "needs data, a URL or a file_id"),
        ({"type": "web_search_call", "id": "ws_1"}, {}, "item of type 'web_search_call'"),
    ],
)
def test_each_unsupported_field_is_named(item, fields, error):
    with pytest.raises(DataError, match=error):
        body(item, **fields)


# Answers


def test_answer_becomes_items_in_order():
    response = answered(THINKING, text("Let me "), text("look."), *CALLS, stop_reason="tool_use")
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (response.output[0].text, response.output_text) == (THINKING["thinking"], "Let me look.")
    assert [(call.call_id, call.arguments) for call in response.tool_calls] == [
        ("toolu_1", '{"at": "sea"}'),
        ("toolu_2", '{"at": "sky"}'),
    ]
    assert response.status == "completed"


@each_case(
    ("stop_reason", "status", "reason"),
    [
        ("end_turn", "completed", None),
        ("tool_use", "completed", None),
        ("stop_sequence", "completed", None),
        (None, "completed", None),
        ("max_tokens", "incomplete", "max_output_tokens"),
        ("model_context_window_exceeded", "incomplete", "max_output_tokens"),
        ("refusal", "incomplete", "content_filter"),
        ("pause_turn", "incomplete", "max_output_tokens"),
    ],
)
def test_each_stop_reason_has_its_equivalent(stop_reason, status, reason):
    response = answered(text("Hm"), stop_reason=stop_reason)
    assert (response.status, response.incomplete_details and response.incomplete_details.reason) == (status, reason)
    assert response.output[-1].status == status


def test_answer_without_content_is_an_empty_message():
    assert [item.type for item in answered(stop_reason="refusal").output] == ["message"]


def test_blocks_of_hosted_tools_are_left_out():
    hosted = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    assert [item.type for item in answered(hosted, text("Found.")).output] == ["message"]


def test_usage_contains_tokens_of_the_cache():
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 5,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
        "service_tier": "standard",
    }
    found = answered(text("Hi"), usage=usage).usage
    assert (found.input_tokens, found.output_tokens, found.total_tokens) == (115, 7, 122)
    assert (found.input_tokens_details.cached_tokens, found.output_tokens_details.reasoning_tokens) == (100, 3)
    assert answered(text("Hi"), usage=None).usage is None


@each_case("content", [None, 7, [{"type": "text"}], [{"type": "tool_use", "id": "t"}]])
def test_answer_in_another_format_is_reported(content):
    with pytest.raises(ValidationError):
        response_of_message({**answer(), "content": content}, params(HELLO))


# There and back


def test_thinking_is_sent_back_unchanged():
    content = [THINKING, REDACTED, OMITTED, text("Let me look."), *CALLS]
    said = answered(*content, stop_reason="tool_use")
    outputs = [output("toolu_1", "wet"), output("toolu_2", "blue")]
    again = ResponseCreateParams.model_validate(
        {"input": [HELLO, *said.model_dump(exclude_unset=True)["output"], *outputs]}
    )
    asked = message_params(again, SETTINGS)["messages"]
    assert asked[1] == {"role": "assistant", "content": content}
    assert asked[2] == user(result("toolu_1", "wet"), result("toolu_2", "blue"))


def test_thinking_survives_clients_of_our_messages_route():
    shown = message_of_response(answered(THINKING, REDACTED, *CALLS, stop_reason="tool_use"))
    sent_back = AnthropicCreateParams.model_validate(
        {"messages": [HELLO, {"role": "assistant", "content": shown.model_dump()["content"]}]}
    )
    asked = message_params(response_params_of_messages(sent_back), SETTINGS)["messages"]
    assert asked[1]["content"] == [THINKING, REDACTED, *CALLS]


def test_reasoning_from_elsewhere_is_left_out():
    summary = [{"type": "summary_text", "text": "Hm"}]
    foreign = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAAA=="}
    unsealed = {"type": "reasoning", "id": "rs_2", "summary": summary}
    assert turns(HELLO, foreign, unsealed, {"role": "assistant", "content": "42"})[1:] == [
        {"role": "assistant", "content": [text("42")]}
    ]


def test_unreadable_arguments_are_sent_back_unchanged():
    begun = start(0, type="tool_use", id="t", name="look", input={})
    cut_off = message_of_events(events(begun, delta(0, type="input_json_delta", partial_json='{"at": "se')))
    (call,) = response_of_message(cut_off, params(HELLO)).output
    assert call.arguments == '{"at": "se'


# Events


def events(*given, end="message_stop"):
    start = {"type": "message_start", "message": {**answer(stop_reason=None), "usage": {"input_tokens": 9}}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 4}}
    every = [start, {"type": "ping"}, *given, stop, *([{"type": end}] if end else [])]
    return b"".join(b"event: %s\ndata: %s\n\n" % (each["type"].encode(), orjson.dumps(each)) for each in every)


def delta(index, **fields):
    return {"type": "content_block_delta", "index": index, "delta": fields}


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def test_events_are_put_together():
    streamed = events(
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="Six times "),
        delta(0, type="thinking_delta", thinking="seven."),
        delta(0, type="signature_delta", signature="c2ln"),
        {"type": "content_block_stop", "index": 0},
        start(1, type="text", text=""),
        delta(1, type="text_delta", text="It is "),
        delta(1, type="text_delta", text="42 ✓."),
        {"type": "content_block_stop", "index": 1},
        start(2, type="tool_use", id="t", name="look", input={}),
        delta(2, type="input_json_delta", partial_json=""),
        delta(2, type="input_json_delta", partial_json='{"at": '),
        delta(2, type="input_json_delta", partial_json='"sea"}'),
        {"type": "content_block_stop", "index": 2},
    )
    message = message_of_events(streamed)
    assert message["content"] == [
        {"type": "thinking", "thinking": "Six times seven.", "signature": "c2ln"},
        text("It is 42 ✓."),
        {"type": "tool_use", "id": "t", "name": "look", "input": {"at": "sea"}},
    ]
    assert (message["stop_reason"], message["usage"]) == ("max_tokens", {"input_tokens": 9, "output_tokens": 4})
    assert message_of_events(streamed.replace(b"\n", b"\r\n")) == message


def test_long_integer_in_a_stream_is_not_rounded():
    written = '{"number": 123456789012345678901234567890}'
    streamed = events(
        start(0, type="tool_use", id="t", name="factor", input={}),
        delta(0, type="input_json_delta", partial_json=written),
        {"type": "content_block_stop", "index": 0},
    )
    (call,) = response_of_message(message_of_events(streamed), params(HELLO)).output
    assert call.arguments == written


@each_case(
    ("kind", "status"), [("overloaded_error", 529), ("rate_limit_error", 429), ("api_error", 500), ("new_error", 500)]
)
def test_error_within_a_stream_has_its_status(kind, status):
    error = {"type": "error", "error": {"type": kind, "message": "Try later."}}
    with pytest.raises(EndpointError, match=f"{kind}: Try later") as caught:
        message_of_events(events(error))
    assert caught.value.status == status


def test_stream_without_an_end_is_an_error():
    with pytest.raises(EndpointError, match="too early"):
        message_of_events(events(start(0, type="text", text="Hm"), end=None))


def test_event_in_another_format_is_an_error():
    with pytest.raises(EndpointError, match="an event content_block_delta that is not in the format"):
        message_of_events(events(delta(5, type="text_delta", text="Hm")))


def test_reply_without_events_is_not_a_message():
    assert message_of_events(b"<html></html>") is None
    assert message_of_events(orjson.dumps(answer(text("Hi")))) == answer(text("Hi"))

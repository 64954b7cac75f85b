"""Calls of the model by a program, in each dialect, as the conversation that is graded."""

import orjson
import pytest

from nemo_gym.dialects import streaming
from nemo_gym.errors import DataError
from nemo_gym.harness import Exchange, task_text
from nemo_gym.schemas.anthropic import AnthropicMessage
from nemo_gym.schemas.chat import ChatCompletion
from nemo_gym.schemas.responses import Response
from nemo_gym.testing import call, reply
from tests.each_case import each_case

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
CHAT_REQUEST = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You look."},
        {"role": "user", "content": "What colour?"},
        {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "blue"},
    ],
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
}
CHAT_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 5,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Blue."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}
MESSAGES_REQUEST = {
    "model": "m",
    "max_tokens": 10,
    "system": "You look.",
    "messages": [
        {"role": "user", "content": "What colour?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "blue"}]},
    ],
    "tools": [{"name": "look", "input_schema": {"type": "object"}}],
}
MESSAGES_ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Blue."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 2},
}
RESPONSES_REQUEST = {
    "model": "m",
    "instructions": "You look.",
    "input": [
        {"role": "user", "content": "What colour?"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "sky"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "blue"},
    ],
    "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
}
RESPONSES_ANSWER = reply("Blue.").model_dump(mode="json") | {
    "usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
}
DIALECTS = {
    CHAT: (CHAT_REQUEST, CHAT_ANSWER),
    MESSAGES: (MESSAGES_REQUEST, MESSAGES_ANSWER),
    RESPONSES: (RESPONSES_REQUEST, RESPONSES_ANSWER),
}


def streamed(path, answer):
    if path == CHAT:
        events = streaming.chunks_of_completion(ChatCompletion.model_validate(answer), include_usage=True)
    elif path == MESSAGES:
        events = streaming.events_of_message(AnthropicMessage.model_validate(answer))
    else:
        events = streaming.events_of_response(Response.model_validate(answer))
    return b"".join(events)


def exchange(path, request, answer, *, stream=False):
    body = streamed(path, answer) if stream else orjson.dumps(answer)
    return Exchange.of(path, orjson.dumps(request), body, "text/event-stream" if stream else "application/json")


@each_case(("path", "stream"), [(path, stream) for path in DIALECTS for stream in (False, True)])
def test_conversation_is_the_same_in_each_dialect(path, stream):
    seen = exchange(path, *DIALECTS[path], stream=stream)
    response = seen.response(seen.usage)
    kinds = [item.type for item in response.output]
    assert kinds == ["function_call", "function_call_output", "message"]
    [called] = response.tool_calls
    assert (called.name, orjson.loads(called.arguments), called.call_id) == ("look", {"at": "sky"}, "c1")
    assert response.output[1].output == "blue"
    assert response.last_text == "Blue."
    assert [tool.name for tool in response.tools] == ["look"]
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (7, 2, 9)


ASKED, CALLED, RESULT = 1, 2, 3
"""Places in the histories below: after the task, after the model's call, and after the tool's result."""


def with_notes(path, role, place, count):
    """Return a request with this many messages of a role at a place, each in a different one of the API's forms."""
    request, answer = DIALECTS[path]
    key = "input" if path == RESPONSES else "messages"
    history = [item for item in request[key] if item["role" if "role" in item else "type"] != "system"]
    kind = "input_text" if path == RESPONSES else "text"
    texts = [f"note {number}" for number in range(count)]
    forms = [text if number % 2 == 0 else [{"type": kind, "text": text}] for number, text in enumerate(texts)]
    notes = [{"role": role, "content": form} for form in forms]
    return {**request, key: [*history[:place], *notes, *history[place:]]}, answer


@each_case(
    ("path", "role", "place", "count"),
    [
        (path, role, place, count)
        for path, roles in {
            CHAT: ("user", "system", "developer"),
            MESSAGES: ("user", "system"),
            RESPONSES: ("user", "system", "developer"),
        }.items()
        for role in roles
        for place in (CALLED, RESULT)
        for count in (1, 3)
    ],
)
def test_later_messages_of_any_role_are_kept(path, role, place, count):
    output = exchange(path, *with_notes(path, role, place, count)).response(None).output
    kinds = ["function_call", "function_call_output", "message"]
    assert [item.type for item in output] == [*kinds[: place - 1], *["message"] * count, *kinds[place - 1 :]]
    notes = output[place - 1 : place - 1 + count]
    texts = [note.content if isinstance(note.content, str) else note.content[0].text for note in notes]
    assert [(note.role, text) for note, text in zip(notes, texts, strict=True)] == [
        (role, f"note {number}") for number in range(count)
    ]


@each_case("blocks", [1, 2])
def test_text_next_to_a_tool_result_is_kept(blocks):
    request, answer = DIALECTS[MESSAGES]
    *before, last = request["messages"]
    said = [{"type": "text", "text": f"note {number}"} for number in range(blocks)]
    both = {"role": "user", "content": [*last["content"], *said]}
    output = exchange(MESSAGES, {**request, "messages": [*before, both]}, answer).response(None).output
    assert [item.type for item in output] == ["function_call", "function_call_output", "message", "message"]
    assert output[2].role == "user"


@each_case(
    "message",
    [
        {"role": "user", "content": "note"},
        {"role": "user", "content": "note", "type": "message"},
        {"role": "user", "content": [{"type": "input_text", "text": "note"}], "status": "completed"},
        {"role": "developer", "content": [{"type": "input_text", "text": "note"}], "type": "message"},
        {"role": "assistant", "content": "note"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "note"}]},
    ],
)
def test_messages_may_omit_their_type(message):
    request = {**RESPONSES_REQUEST, "input": [*RESPONSES_REQUEST["input"], message]}
    output = exchange(RESPONSES, request, RESPONSES_ANSWER).response(None).output
    assert [item.type for item in output] == ["function_call", "function_call_output", "message", "message"]
    assert output[2].role == message["role"]


@each_case(
    ("path", "ending", "reason"),
    [
        (CHAT, {"choices": [{**CHAT_ANSWER["choices"][0], "finish_reason": "length"}]}, "max_output_tokens"),
        (CHAT, {"choices": [{**CHAT_ANSWER["choices"][0], "finish_reason": "tool_calls"}]}, None),
        (MESSAGES, {"stop_reason": "max_tokens"}, "max_output_tokens"),
        (MESSAGES, {"stop_reason": "refusal"}, "content_filter"),
        (MESSAGES, {"stop_reason": None}, None),
        (RESPONSES, {"incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        (RESPONSES, {"incomplete_details": None}, None),
    ],
)
def test_incomplete_answer_is_marked(path, ending, reason):
    request, answer = DIALECTS[path]
    response = exchange(path, request, {**answer, **ending}).response(None)
    assert (response.incomplete_details and response.incomplete_details.reason) == reason
    assert response.status == ("incomplete" if reason else "completed")


@each_case("path", list(DIALECTS))
def test_interrupted_streams_are_no_answers(path):
    begun = streamed(path, DIALECTS[path][1]).split(b"\n\n")[0] + b"\n\n"
    assert Exchange.of(path, b"{}", begun, "text/event-stream") is None


@each_case(("request_", "answer"), [(b"x", b"{}"), (b"{}", b"x"), (b"[]", b"{}"), (b"{}", b"[]")])
def test_other_bodies_are_no_exchange(request_, answer):
    assert Exchange.of(CHAT, request_, answer, "application/json") is None


@each_case(
    ("request_", "answer"),
    [({"messages": [{"role": "tool", "content": "?"}]}, CHAT_ANSWER), (CHAT_REQUEST, {**CHAT_ANSWER, "choices": []})],
)
def test_unreadable_conversation_is_an_error(request_, answer):
    seen = exchange(CHAT, request_, answer)
    with pytest.raises(DataError, match="the program's last model call cannot be read"):
        seen.response(None)


def test_text_input_is_one_message():
    seen = exchange(RESPONSES, {"input": "Hi"}, reply(call("look")).model_dump(mode="json"))
    assert [item.type for item in seen.response(None).output] == ["function_call"]


@each_case(
    ("params", "text"),
    [
        ({"input": "Do it."}, "Do it."),
        ({"input": [{"role": "user", "content": "Do it."}], "instructions": "Well."}, "Well.\n\nDo it."),
        (
            {"input": [{"role": "system", "content": [{"type": "input_text", "text": "A"}]}, {"content": "B"}]},
            "A\n\nB",
        ),
        ({"input": []}, ""),
        ({}, ""),
    ],
)
def test_task_is_the_text_of_the_input(params, text):
    assert task_text(params) == text

"""Tests of the stream events made from a finished answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.dialects.streaming import (
    chunks_of_completion,
    events_of_message,
    events_of_response,
    failed_response,
)
from nemo_gym.schemas.anthropic import AnthropicMessage
from nemo_gym.schemas.chat import ChatCompletion
from nemo_gym.schemas.responses import IncompleteDetails, Response
from nemo_gym.testing import call, reply
from tests.each_case import each_case

USAGE = {"input_tokens": 6, "output_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 5}
BLOCKS = [
    {"type": "thinking", "thinking": "Hm.", "signature": "rs_1:"},
    {"type": "redacted_thinking", "data": "rs_2:gAAAA"},
    {"type": "text", "text": "Let me see.\n\n"},
    {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Tromsø", "big": 2**70}},
]
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}


def read(events):
    """Return the data of each event, and check that its name, if any, is the data's type."""
    found = []
    for event in events:
        text = event.decode()
        assert text.endswith("\n\n")
        *named, data = text.removesuffix("\n\n").split("\n")
        found.append(json.loads(data.removeprefix("data: ")) if data != "data: [DONE]" else "[DONE]")
        assert named in ([], [f"event: {found[-1]['type'] if named else ''}"])
    return found


def message(*blocks, **fields):
    return AnthropicMessage.model_validate(
        {"id": "resp_1", "model": "m", "content": blocks, "stop_reason": "end_turn", "usage": USAGE, **fields}
    )


def gathered(events):
    """Assemble a message from its events, as a client does."""
    snapshot = events[0]["message"]
    partial = ""
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(snapshot["content"])
                snapshot["content"].append(event["content_block"])
                partial = ""
            case "content_block_delta":
                block = snapshot["content"][event["index"]]
                match event["delta"]:
                    case {"type": "text_delta", "text": text}:
                        block["text"] += text
                    case {"type": "thinking_delta", "thinking": text}:
                        block["thinking"] += text
                    case {"type": "signature_delta", "signature": signature}:
                        block["signature"] = signature
                    case {"type": "input_json_delta", "partial_json": text}:
                        partial += text
            case "content_block_stop":
                if partial:
                    snapshot["content"][event["index"]]["input"] = json.loads(partial)
                partial = ""
            case "message_delta":
                snapshot |= event["delta"]
                snapshot["usage"] |= event["usage"]
    return snapshot


# Responses


def test_last_event_has_the_complete_response():
    answered = reply(call("get_weather", city="Oslo"), "It is cold.")
    events = read(events_of_response(answered))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.output_item.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert Response.model_validate(events[-1]["response"]) == answered
    assert [event["item"] for event in events[1:3]] == events[-1]["response"]["output"]
    assert [event["sequence_number"] for event in events] == [0, 1, 2, 3]


def test_truncated_response_is_completed_with_its_reason():
    cut_off = reply("I begin with").model_copy(
        update={"status": "incomplete", "incomplete_details": IncompleteDetails(reason="max_output_tokens")}
    )
    created, _, completed = read(events_of_response(cut_off))
    assert completed["type"] == "response.completed"
    assert completed["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (created["response"]["status"], created["response"]["incomplete_details"]) == ("in_progress", None)


def test_failed_response_ends_with_its_error():
    created, failed = read(events_of_response(failed_response("asleep", model="m")))
    assert (created["type"], created["response"]["error"]) == ("response.created", None)
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "asleep"}


# Chat Completions


def completion(*choices, **fields):
    return ChatCompletion.model_validate({"id": "c", "created": 1, "model": "m", "choices": choices, **fields})


def test_every_choice_has_its_message_and_its_end():
    choices = [
        {"index": index, "finish_reason": "stop", "logprobs": {"content": []}, "message": {"content": text}}
        for index, text in enumerate(["one", "two"])
    ]
    *chunks, done = read(chunks_of_completion(completion(*choices, system_fingerprint="fp")))
    assert done == "[DONE]"
    parts = [part for chunk in chunks for part in chunk["choices"]]
    assert [(part["index"], part["delta"], part["finish_reason"]) for part in parts] == [
        (0, {"role": "assistant", "content": "one"}, None),
        (0, {}, "stop"),
        (1, {"role": "assistant", "content": "two"}, None),
        (1, {}, "stop"),
    ]
    assert parts[0]["logprobs"] == {"content": []}
    heads = [{key: value for key, value in chunk.items() if key != "choices"} for chunk in chunks]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "fp"}
    assert heads == [head] * 4


def test_tool_calls_are_numbered_and_extra_fields_kept():
    called = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"content": None, "tool_calls": [called, called], "reasoning_content": "Hm.", **TOKENS}
    chunk, *_ = read(chunks_of_completion(completion({"index": 0, "finish_reason": "tool_calls", "message": message})))
    assert chunk["choices"][0]["delta"] == {
        "role": "assistant",
        "tool_calls": [{"index": 0, **called}, {"index": 1, **called}],
        "reasoning_content": "Hm.",
        **TOKENS,
    }


@pytest.mark.parametrize(("usage", "counts"), [({"total_tokens": 5}, [None, None, 5]), (None, [None, None])])
def test_known_usage_comes_last(usage, counts):
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": "Hi"}}
    *chunks, _ = read(chunks_of_completion(completion(choice, usage=usage), include_usage=True))
    assert [chunk["usage"] and chunk["usage"]["total_tokens"] for chunk in chunks] == counts
    assert all(bool(chunk["choices"]) == (chunk["usage"] is None) for chunk in chunks)


# Messages


@each_case("blocks", [BLOCKS, [], BLOCKS[2:3]])
def test_client_reassembles_the_message(blocks):
    counts = message(*blocks, stop_reason="tool_use")
    events = read(events_of_message(counts))
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["stop_reason"] is None
    assert events[0]["message"]["usage"]["output_tokens"] == 0
    assert events[-1] == {"type": "message_stop"}
    assert AnthropicMessage.model_validate(gathered(events)) == counts


def test_each_block_starts_empty_and_stops():
    events = read(events_of_message(message(*BLOCKS)))
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "redacted_thinking", "data": "rs_2:gAAAA"},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}},
    ]
    assert [event["index"] for event in events if event["type"] == "content_block_stop"] == [0, 1, 2, 3]


@given(st.text(min_size=1))
def test_text_never_breaks_event_lines(text):
    counts = message({"type": "text", "text": text})
    assert AnthropicMessage.model_validate(gathered(read(events_of_message(counts)))) == counts

"""Assemble streamed answers into the form of an answer that was not streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from nemo_gym.capture.exchange import Dialect, ErrorCategory
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.shapes import AnswerJson, ChoiceJson, StreamEvent, ToolCall

DONE = "[DONE]"
ENDS_OF_RESPONSE = ("response.completed", "response.incomplete", "response.failed")


class Answer(NamedTuple):
    """An assembled answer, and its error if any."""

    response: AnswerJson | None
    """The answer; None if the events do not contain it."""
    error_category: ErrorCategory | None = None


def assembled(dialect: Dialect, body: bytes) -> Answer:
    """Assemble the answer from a stream of server-sent events. A truncated stream results in a partial answer."""
    try:
        events = list(_events(body))
        match dialect:
            case "responses":
                return _response(events)
            case "chat":
                return _completion(events)
            case "messages":
                return _message(events)
    except (orjson.JSONDecodeError, UnicodeDecodeError, KeyError, IndexError, TypeError, AttributeError):
        # Report malformed events instead of failing. The caller of this function keeps their text.
        return Answer(None, ErrorCategory.CAPTURE_PARSE_ERROR)


def _events(body: bytes) -> Iterator[StreamEvent]:
    """Yield the data of each event as JSON. The final `[DONE]` of chat completions becomes `{}`."""
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]:
        lines = block.decode().split("\n")
        data = "\n".join(line.removeprefix("data:").removeprefix(" ") for line in lines if line.startswith("data:"))
        if data:
            yield {} if data == DONE else orjson.loads(data)


def _response(events: list[StreamEvent]) -> Answer:
    for event in reversed(events):
        if event["type"] in ENDS_OF_RESPONSE:
            has_failed = event["type"] == "response.failed"
            return Answer(event["response"], ErrorCategory.UPSTREAM_ERROR if has_failed else None)
        if event["type"] == "error":
            return Answer(None, ErrorCategory.UPSTREAM_ERROR)
    begun: AnswerJson | None = next(
        (event["response"] for event in events if event["type"] == "response.created"), None
    )
    if begun is not None:
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        begun = {**begun, "output": items}
    return Answer(begun, ErrorCategory.STREAM_TRUNCATED)


def _completion(events: list[StreamEvent]) -> Answer:
    chunks = [event for event in events if event]
    if any("error" in chunk for chunk in chunks):
        return Answer(None, ErrorCategory.UPSTREAM_ERROR)
    truncated = None if events and events[-1] == {} else ErrorCategory.STREAM_TRUNCATED
    if not chunks:
        return Answer(None, truncated or ErrorCategory.CAPTURE_PARSE_ERROR)
    choices: dict[int, ChoiceJson] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], {"index": part["index"], "message": {}, "finish_reason": None})
            _add_delta(choice["message"], part.get("delta") or {})
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
            if part.get("logprobs"):
                choice["logprobs"] = part["logprobs"]
    head = {key: value for key, value in chunks[0].items() if key not in ("choices", "usage", "object")}
    whole: Any = {**head, "object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}
    return Answer(whole | {"usage": usage}, truncated)


def _add_delta(message: JsonObject, delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            for part in value:
                _add_call(message.setdefault("tool_calls", []), part)
        elif isinstance(value, str) and key != "role":
            message[key] = (message.get(key) or "") + value
        elif value is not None:
            message[key] = value


def _add_call(calls: list[ToolCall], part: ToolCall) -> None:
    """Add a part of a tool call: the name comes first, then pieces of the arguments."""
    index = part["index"]
    while len(calls) <= index:
        calls.append({"function": {"name": "", "arguments": ""}})
    call = calls[index]
    for name, piece in (part.get("function") or {}).items():
        call["function"][name] = call["function"].get(name, "") + (piece or "")
    call.update({key: value for key, value in part.items() if key not in ("index", "function") and value is not None})


def _message(events: list[StreamEvent]) -> Answer:
    message: AnswerJson | None = None
    blocks: dict[int, JsonObject] = {}
    pieces: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "error":
                return Answer(message, ErrorCategory.UPSTREAM_ERROR)
            case "message_start":
                message = event["message"] | {"content": []}
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta" if event["delta"]["type"] == "input_json_delta":
                pieces[event["index"]] = pieces.get(event["index"], "") + event["delta"]["partial_json"]
            case "content_block_delta":
                name = event["delta"]["type"].removesuffix("_delta")
                block = blocks[event["index"]]
                block[name] = block.get(name, "") + event["delta"][name]
            case "message_delta" if message is not None:
                usage = {**(message.get("usage") or {}), **(event.get("usage") or {})}
                message |= event["delta"] | {"usage": usage}
    for index, written in pieces.items():
        blocks[index]["input"] = orjson.loads(written or "{}")
    if message is not None:
        message["content"] = [blocks[index] for index in sorted(blocks)]
    has_ended = any(event["type"] == "message_stop" for event in events)
    return Answer(message, None if has_ended else ErrorCategory.STREAM_TRUNCATED)

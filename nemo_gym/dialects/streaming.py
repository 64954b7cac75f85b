"""Turn a finished answer into the server-sent events of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import to_json

from nemo_gym.dialects.chat import new_id
from nemo_gym.schemas.anthropic import AnswerBlock, AnthropicMessage, RedactedThinkingBlock, TextBlock, ThinkingBlock
from nemo_gym.schemas.base import WireModel
from nemo_gym.schemas.chat import ChatCompletion, ChatMessage
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.shapes import ChoiceJson

MEDIA_TYPE = "text/event-stream"


# Streams of the Responses API


def events_of_response(response: Response) -> Iterator[bytes]:
    """Return the events `response.created`, `response.output_item.done` for each item, and `response.completed`.

    If `status` is `failed`, the last event is `response.failed`. An incomplete response also ends with
    `response.completed`; its `status` and `incomplete_details` say so.
    """
    begun = response.model_copy(
        update={"status": "in_progress", "output": [], "usage": None, "error": None, "incomplete_details": None}
    )
    response = _with_counts(response)
    ended = "response.failed" if response.status == "failed" else "response.completed"
    events: list[Mapping[str, object]] = [
        {"type": "response.created", "response": begun},
        *(
            {"type": "response.output_item.done", "output_index": index, "item": item}
            for index, item in enumerate(response.output)
        ),
        {"type": ended, "response": response},
    ]
    return (_named({**event, "sequence_number": number}) for number, event in enumerate(events))


def _with_counts(response: Response) -> Response:
    """Return a response with 0 for unknown token counts, because clients reject nulls in a stream."""
    if response.usage is None:
        return response
    of_input, of_output = response.usage.input_tokens_details, response.usage.output_tokens_details
    counts = {
        "input_tokens_details": of_input.model_copy(update={"cached_tokens": of_input.cached_tokens or 0}),
        "output_tokens_details": of_output.model_copy(update={"reasoning_tokens": of_output.reasoning_tokens or 0}),
    }
    return response.model_copy(update={"usage": response.usage.model_copy(update=counts)})


def failed_response(message: str, *, model: str | None) -> Response:
    return Response(
        id=new_id("resp"),
        created_at=int(time.time()),
        model=model or "",
        output=[],
        status="failed",
        error=WireModel.model_validate({"code": "server_error", "message": message}),
    )


# Streams of the Chat Completions API


def chunks_of_completion(completion: ChatCompletion, *, include_usage: bool = False) -> Iterator[bytes]:
    """Yield two chunks per choice (the message and its end), the usage if it is requested, then `[DONE]`."""
    head = completion.model_dump(exclude={"choices", "usage", "object"}, exclude_none=True)
    head |= {"object": "chat.completion.chunk"}
    # If usage is requested, all chunks except the one with the usage have a null `usage`.
    no_usage = {"usage": None} if include_usage else {}
    for choice in completion.choices:
        message: ChoiceJson = {"delta": _delta(choice.message), "logprobs": choice.logprobs, "finish_reason": None}
        end: ChoiceJson = {"delta": {}, "logprobs": None, "finish_reason": choice.finish_reason}
        for part in (message, end):
            yield _unnamed({**head, "choices": [{"index": choice.index, **part}], **no_usage})
    if include_usage and completion.usage is not None:
        yield _unnamed({**head, "choices": [], "usage": completion.usage})
    yield b"data: [DONE]\n\n"


def _delta(message: ChatMessage) -> Any:
    delta = message.model_dump(exclude={"tool_calls"}, exclude_none=True)
    if message.tool_calls:
        delta["tool_calls"] = [{"index": index, **call.model_dump()} for index, call in enumerate(message.tool_calls)]
    return delta


# Streams of the Messages API


def events_of_message(message: AnthropicMessage) -> Iterator[bytes]:
    """Yield `message_start`, then start, deltas and stop of each block, then `message_delta` and `message_stop`."""
    usage = message.usage.model_copy(update={"output_tokens": 0})
    begun = message.model_copy(update={"content": [], "stop_reason": None, "usage": usage})
    yield _named({"type": "message_start", "message": begun})
    for index, block in enumerate(message.content):
        start, deltas = _start_of_block(block), _deltas_of_block(block)
        yield _named({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _named({"type": "content_block_delta", "index": index, "delta": delta})
        yield _named({"type": "content_block_stop", "index": index})
    end = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
    yield _named({"type": "message_delta", "delta": end, "usage": message.usage})
    yield _named({"type": "message_stop"})


def _start_of_block(block: AnswerBlock) -> AnswerBlock:
    match block:
        case TextBlock():
            return block.model_copy(update={"text": ""})
        case ThinkingBlock():
            return block.model_copy(update={"thinking": "", "signature": ""})
        case RedactedThinkingBlock():
            return block
    return block.model_copy(update={"input": {}})


def _deltas_of_block(block: AnswerBlock) -> list[Mapping[str, object]]:
    match block:
        case TextBlock():
            return [{"type": "text_delta", "text": block.text}]
        case ThinkingBlock():
            signature = {"type": "signature_delta", "signature": block.signature}
            return [{"type": "thinking_delta", "thinking": block.thinking}, signature]
        case RedactedThinkingBlock():
            return []
    return [{"type": "input_json_delta", "partial_json": to_json(block.input).decode()}]


def _named(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))


def _unnamed(event: Mapping[str, object]) -> bytes:
    return b"data: %b\n\n" % to_json(event)

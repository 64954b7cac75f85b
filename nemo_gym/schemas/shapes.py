"""The JSON of model APIs as it travels. The types name the keys, so that mypy finds misspelled ones.

Anyone may have written the JSON: a value may have any type, and there may be other keys, too.
"""

from __future__ import annotations

from typing import Any

from pydantic import GetPydanticSchema

# Do not import `TypedDict` from `typing`: before Python 3.12, pydantic supports only the one from `typing_extensions`.
from typing_extensions import TypedDict

from nemo_gym.jsonl import JsonObject

ANY_KEYS = GetPydanticSchema(lambda _, handler: handler(JsonObject))
"""An annotation of a shape in a pydantic model: accept any JSON object, and keep all of its keys in their order."""

Item = TypedDict("Item", {
    "type": Any, "id": Any, "status": Any, "role": Any, "content": Any, "refusal": Any, "call_id": Any, "name": Any,
    "namespace": Any, "arguments": Any, "output": Any, "outputs": Any, "results": Any, "error": Any, "input": Any,
    "action": Any, "tools": Any, "summary": Any, "encrypted_content": Any, "claimed_by_program": Any, "value": Any,
    "prompt_token_ids": Any, "generation_token_ids": Any, "generation_log_probs": Any, "routed_experts": Any,
    "sampling_spans": Any,
}, total=False)  # fmt: skip
"""An item of the Responses API: a message, a call, its output or reasoning. A message may omit its `type`."""
Part = TypedDict("Part", {
    "type": Any, "text": Any, "refusal": Any, "logprobs": Any, "detail": Any, "image_url": Any, "file": Any,
    "file_id": Any, "file_data": Any, "filename": Any, "input_audio": Any, "audio": Any, "audio_url": Any,
    "video": Any, "video_url": Any, "source": Any, "data": Any,
}, total=False)  # fmt: skip
"""A part of a message's content or of a tool's output, in Responses or Chat Completions."""
MessageJson = TypedDict("MessageJson", {
    "role": Any, "content": Any, "name": Any, "refusal": Any, "annotations": Any, "tool_calls": Any,
    "tool_call_id": Any, "function_call": Any, "reasoning": Any, "reasoning_content": Any, "reasoning_details": Any,
    "prompt_token_ids": Any, "generation_token_ids": Any, "generation_log_probs": Any, "routed_experts": Any,
    "sampling_spans": Any,
}, total=False)  # fmt: skip
"""A message of Chat Completions, in a request or in an answer."""
ToolCall = TypedDict("ToolCall", {
    "type": Any, "id": Any, "index": Any, "function": Any,
}, total=False)  # fmt: skip
"""A call in a message of Chat Completions. `function` has the `name` and the `arguments`."""
ToolDefinition = TypedDict("ToolDefinition", {
    "type": Any, "name": Any, "description": Any, "parameters": Any, "strict": Any, "function": Any,
    "input_schema": Any, "tools": Any,
}, total=False)  # fmt: skip
"""A tool that a request offers, in Responses, Chat Completions (with `function`) or Messages."""
ChoiceJson = TypedDict("ChoiceJson", {
    "index": Any, "message": Any, "delta": Any, "text": Any, "logprobs": Any, "finish_reason": Any,
}, total=False)  # fmt: skip
"""One alternative of a completion. Chunks of a stream have a `delta` instead of a `message`."""
AnswerJson = TypedDict("AnswerJson", {
    "id": Any, "object": Any, "type": Any, "role": Any, "model": Any, "created": Any, "created_at": Any,
    "choices": Any, "output": Any, "content": Any, "messages": Any, "usage": Any, "status": Any, "error": Any,
    "incomplete_details": Any, "stop_reason": Any, "stop_sequence": Any, "tools": Any, "tool_choice": Any,
    "parallel_tool_calls": Any,
}, total=False)  # fmt: skip
"""A model's whole answer: a completion, a response or a message of the Messages API."""
RequestJson = TypedDict("RequestJson", {
    "model": Any, "input": Any, "messages": Any, "instructions": Any, "metadata": Any, "tools": Any,
    "tool_choice": Any, "parallel_tool_calls": Any, "max_output_tokens": Any, "max_tokens": Any, "temperature": Any,
    "top_p": Any, "text": Any, "system": Any, "previous_response_id": Any,
}, total=False)  # fmt: skip
"""A request to a model, of Responses or Chat Completions."""
Block = TypedDict("Block", {
    "type": Any, "text": Any, "id": Any, "name": Any, "input": Any, "tool_use_id": Any, "content": Any,
    "thinking": Any, "signature": Any, "data": Any, "source": Any, "title": Any,
}, total=False)  # fmt: skip
"""A content block of the Messages API."""
StreamEvent = TypedDict("StreamEvent", {
    "type": Any, "index": Any, "delta": Any, "usage": Any, "error": Any, "message": Any, "content_block": Any,
    "response": Any, "item": Any, "object": Any, "choices": Any,
}, total=False)  # fmt: skip
"""An event of a stream, of any API."""

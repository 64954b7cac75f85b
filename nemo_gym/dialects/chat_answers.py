"""Convert answers of Chat Completions to the format of Responses: a message to items, a completion to a response."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from nemo_gym.dialects.chat_parts import text_of_parts
from nemo_gym.dialects.thinking import Thought, split_thinking, wrapped_in_think_tags
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import objects_in
from nemo_gym.records.usage import response_usage
from nemo_gym.schemas.base import WireModel
from nemo_gym.schemas.items import (
    FunctionToolCall,
    OutputItem,
    OutputMessage,
    OutputRefusal,
    OutputText,
    ReasoningItem,
    Summary,
    training_variant_of,
)
from nemo_gym.schemas.responses import IncompleteDetails, Response, ResponseCreateParams
from nemo_gym.schemas.shapes import AnswerJson, MessageJson, ToolCall, ToolDefinition
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS, TOKEN_METADATA_FIELDS

NewId = Callable[[str], str]
"""A function that makes an id with the given prefix: `rs`, `msg`, `call`, `resp`."""

INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
THINKING_BLOCKS = "thinking_blocks"
"""The field in which LiteLLM returns Claude's thinking blocks, with their signatures."""
OPAQUE, OPAQUE_REASONING = "extra_content", ("reasoning_details", THINKING_BLOCKS)
"""Fields with a provider's own state, such as Gemini's signatures. The next request must contain them unchanged."""
REASONING_FIELDS = ("reasoning_content", "reasoning")
ECHOED = (
    "background", "conversation", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
    "previous_response_id", "prompt", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier",
    "temperature", "text", "tool_choice", "top_logprobs", "top_p", "truncation", "user",
)  # fmt: skip


def response_of_completion(
    completion: AnswerJson, params: ResponseCreateParams, *, new_id: NewId, keeps_tokens: bool, splits_reasoning: bool
) -> Response:
    """Convert the first choice of a completion to a response. Raise `DataError` if there is no choice."""
    if not completion.get("choices"):
        raise DataError("the completion has no choices")
    choice = completion["choices"][0]
    reason = INCOMPLETE_REASONS.get(choice.get("finish_reason") or "")
    logprobs = (choice.get("logprobs") or {}).get("content") if params.top_logprobs is not None else None
    return Response(
        id=new_id("resp"),
        object="response",
        created_at=completion.get("created") or int(time.time()),
        model=completion.get("model") or params.model or "",
        output=items_of_message(
            choice.get("message") or MessageJson(),
            new_id=new_id,
            keeps_tokens=keeps_tokens,
            splits_reasoning=splits_reasoning,
            logprobs=logprobs,
        ),
        status="incomplete" if reason else "completed",
        incomplete_details=IncompleteDetails(reason=reason) if reason else None,
        error=None,
        usage=response_usage(completion.get("usage")),
        **echo_of(params),
    )


def echo_of(params: ResponseCreateParams) -> JsonObject:
    """Return the fields of a response that repeat its request."""
    return {
        "parallel_tool_calls": params.parallel_tool_calls is not False,
        "tools": [_echoed_tool(tool) for tool in params.tools],
        **{name: getattr(params, name) for name in ECHOED},
    }


def _echoed_tool(tool: ToolDefinition) -> WireModel:
    # Set these two fields even if they are null, because clients expect them.
    defaults = {"parameters": None, "strict": None} if tool["type"] == "function" else {}
    return WireModel(**{**defaults, **tool})


def items_of_message(
    message: MessageJson,
    *,
    new_id: NewId,
    keeps_tokens: bool,
    splits_reasoning: bool = True,
    logprobs: list[Mapping[str, Any]] | None = None,
) -> list[OutputItem]:
    """Convert an assistant's chat message to items: reasoning, then text, then calls.

    With `keeps_tokens`, the last item has the message's tokens. Without `splits_reasoning`, the text contains the
    reasoning as `<think>…</think>`.
    """
    reasoning, text = _reasoning_and_text(message, splits_reasoning)
    refusal, calls = message.get("refusal"), message.get("tool_calls") or []
    items: list[OutputItem] = []
    opaque = {name: state for name in OPAQUE_REASONING if (state := message.get(name))}
    if reasoning or opaque:
        summary = [Summary(text=paragraph) for paragraph in reasoning]
        items.append(ReasoningItem(id=new_id("rs"), summary=summary, **opaque))
    if text or refusal or not (reasoning or calls):
        parts: list[OutputText | OutputRefusal] = []
        if text or not refusal:
            parts.append(OutputText(text=text, annotations=[], logprobs=_logprobs(logprobs)))
        if refusal:
            parts.append(OutputRefusal(refusal=refusal))
        items.append(OutputMessage(id=new_id("msg"), content=parts, **_opaque(message)))
    items += [_call(call, new_id) for call in calls]
    if keeps_tokens and all(message.get(name) is not None for name in REQUIRED_TOKEN_METADATA_FIELDS):
        items[-1] = _with_tokens(items[-1], message)
    return items


def _reasoning_and_text(message: MessageJson, splits_reasoning: bool) -> Thought:
    text = text_of_parts(message.get("content"))
    separate = separate_reasoning(message)
    if separate is None and "<think>" not in text:
        blocks = objects_in(message.get(THINKING_BLOCKS))
        separate = "\n".join(block["thinking"] for block in blocks if block.get("thinking")) or None
    if not splits_reasoning:
        return Thought([], text if separate is None else wrapped_in_think_tags([separate]) + text)
    if separate is not None:
        # The endpoint has separated reasoning and text, so a `<think>` tag in the text is ordinary text.
        return Thought([separate], text)
    return split_thinking(text)


def separate_reasoning(message: Mapping[str, object]) -> str | None:
    """Return the reasoning from a separate field, or None if each such field is absent or blank."""
    found = (message.get(name) for name in REASONING_FIELDS)
    return next((reasoning for reasoning in found if isinstance(reasoning, str) and reasoning.strip()), None)


def _call(call: ToolCall, new_id: NewId) -> FunctionToolCall:
    function = call.get("function") or {}
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        arguments = orjson.dumps(arguments).decode()
    call_id = call.get("id") or new_id("call")
    return FunctionToolCall(
        id=call_id,
        call_id=call_id,
        name=function.get("name") or "",
        arguments=arguments,
        status="completed",
        **_opaque(call),
    )


def _opaque(part: Mapping[str, object]) -> JsonObject:
    return {OPAQUE: part[OPAQUE]} if part.get(OPAQUE) else {}


def _with_tokens(item: OutputItem, message: Mapping[str, object]) -> OutputItem:
    tokens = {name: message[name] for name in TOKEN_METADATA_FIELDS if message.get(name) is not None}
    fields = {name: getattr(item, name) for name in item.model_fields_set}
    with_tokens: OutputItem = training_variant_of(type(item))(**fields, **tokens)  # type: ignore[assignment]
    return with_tokens


def _logprobs(content: list[Mapping[str, Any]] | None) -> list[object] | None:
    if content is None:
        return None
    return [{"bytes": [], "top_logprobs": [], **_without_nones(token)} for token in content]


def _without_nones(token: Mapping[str, Any]) -> Mapping[str, object]:
    known = {name: value for name, value in token.items() if value is not None}
    if "top_logprobs" in known:
        known["top_logprobs"] = [{"bytes": [], **_without_nones(other)} for other in known["top_logprobs"]]
    return known

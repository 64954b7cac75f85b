"""Convert answers of Anthropic Messages to Responses."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby

from pydantic import TypeAdapter, ValidationError

from nemo_gym.dialects.anthropic import items_of_message
from nemo_gym.dialects.anthropic_requests import REDACTED_THINKING, THINKING
from nemo_gym.dialects.calls import input_of_call, unique_ids
from nemo_gym.dialects.chat import new_id
from nemo_gym.dialects.chat_answers import echo_of
from nemo_gym.errors import DataError
from nemo_gym.records.usage import response_usage
from nemo_gym.schemas import anthropic
from nemo_gym.schemas.items import (
    FunctionToolCall,
    OutputItem,
    OutputMessage,
    OutputPart,
    OutputText,
    ReasoningItem,
    Status,
    Summary,
)
from nemo_gym.schemas.responses import IncompleteDetails, Response, ResponseCreateParams, sum_of_counts
from nemo_gym.schemas.shapes import AnswerJson

_CONTENT: TypeAdapter[list[anthropic.ContentBlock]] = TypeAdapter(list[anthropic.ContentBlock])
PAUSED = "pause_turn"
"""The stop reason of an unfinished answer. The endpoint continues the answer if the client sends it back."""
INCOMPLETE_REASONS = {
    "max_tokens": "max_output_tokens", "model_context_window_exceeded": "max_output_tokens",
    PAUSED: "max_output_tokens", "refusal": "content_filter",
}  # fmt: skip
"""Reasons of incomplete responses, by stop reason. All other stop reasons mean that the answer is complete."""
STOP_REASONS = (*INCOMPLETE_REASONS, "end_turn", "stop_sequence", "tool_use")


def response_of_message(message: AnswerJson, params: ResponseCreateParams) -> Response:
    """Convert a Messages answer to the response for the request `params`.

    Raise `DataError` for invalid content, and for an answer without content if its stop reason is unknown or missing.
    """
    content = _blocks(message)
    if message.get("stop_reason") not in STOP_REASONS and all(_is_empty(block) for block in content):
        raise DataError(
            f"the endpoint returned an empty answer with the stop_reason {message.get('stop_reason')!r}, so the model "
            "may have failed. The endpoint's log may have the cause."
        )
    reason = INCOMPLETE_REASONS.get(message.get("stop_reason") or "")
    status: Status = "incomplete" if reason else "completed"
    output = items_of_content(content)
    if isinstance(output[-1], (OutputMessage, FunctionToolCall)):
        output[-1].status = status
    return Response(
        id=given if isinstance(given := message.get("id"), str) and given else new_id("resp"),
        object="response",
        created_at=int(time.time()),
        model=str(message.get("model") or params.model or ""),
        output=output,
        status=status,
        incomplete_details=IncompleteDetails(reason=reason) if reason else None,
        error=None,
        usage=response_usage(message.get("usage")),
        **echo_of(params),
    )


def _is_empty(block: anthropic.ContentBlock) -> bool:
    return isinstance(block, anthropic.TextBlock) and not block.text


def _blocks(message: AnswerJson) -> list[anthropic.ContentBlock]:
    content = message.get("content")
    try:
        return _CONTENT.validate_python(content)
    except ValidationError:
        given = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return _CONTENT.validate_python([_repaired(block) for block in given] if isinstance(given, list) else given)


def _repaired(block: object) -> object:
    """Return a block with the fields that the Messages API requires, unless they are a part of the answer."""
    if not isinstance(block, dict):
        return block
    given = block.get("input")
    match block.get("type"):
        case "tool_use":
            (call_id,) = unique_ids([block.get("id")])
            known = input_of_call(given) if isinstance(given, str) else {} if given is None else given
            return {**block, "id": call_id, "input": known}
        case "text" | "thinking" as kind:
            signature = {"signature": str(block.get("signature") or "")} if kind == "thinking" else {}
            return {name: "" if each is None else each for name, each in block.items()} | signature
    return block


def items_of_content(content: Iterable[anthropic.ContentBlock]) -> list[OutputItem]:
    """Convert the blocks of an answer in order. Adjacent text blocks become one message.

    Blocks of server-side tools, which Anthropic executes, are left out. If no item remains, return one empty message.
    """
    items: list[OutputItem] = []
    for is_text, blocks in groupby(content, key=lambda block: isinstance(block, anthropic.TextBlock)):
        if is_text:
            items.append(_said(*(block.text for block in blocks if isinstance(block, anthropic.TextBlock))))
        else:
            items += [item for block in blocks if (item := _item(block)) is not None]
    return items or [_said("")]


def _said(*texts: str) -> OutputMessage:
    parts: list[OutputPart] = [OutputText(text=text, annotations=[]) for text in texts]
    return OutputMessage(id=new_id("msg"), content=parts, status="completed")


def _item(block: anthropic.ContentBlock) -> OutputItem | None:
    match block:
        case anthropic.ToolUseBlock():
            (call,) = items_of_message(anthropic.MessageParam(role="assistant", content=[block]))
            return call.model_copy(update={"id": block.id, "status": "completed"})
        case anthropic.ThinkingBlock():
            return _reasoning(block.thinking, f"{THINKING}:{block.signature}")
        case anthropic.RedactedThinkingBlock():
            return _reasoning("", f"{REDACTED_THINKING}:{block.data}")
    return None


def _reasoning(text: str, seal: str) -> ReasoningItem:
    return ReasoningItem(id=new_id("rs"), summary=[Summary(text=text)] if text else [], encrypted_content=seal)


def joined(earlier: AnswerJson, later: AnswerJson) -> AnswerJson:
    """Join a paused answer and its continuation. Concatenate their content and add their token counts."""
    known = earlier.get("usage") and later.get("usage")
    usage = sum_of_counts(earlier["usage"], later["usage"]) if known else None
    return {**later, "content": [*earlier["content"], *later["content"]], "usage": usage}

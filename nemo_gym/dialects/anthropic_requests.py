"""Convert Responses requests to Anthropic Messages, for a model at a Messages endpoint."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter

from nemo_gym.dialects.anthropic import TOOL_CHOICES, blocks_of_item
from nemo_gym.dialects.sendable import with_clean_parameters
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    InputFile,
    InputImage,
    InputPart,
    InputText,
    Message,
    OutputMessage,
    OutputRefusal,
    OutputText,
    ReasoningItem,
)
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.shapes import Block, MessageJson, ToolDefinition

THINKING, REDACTED_THINKING = "thinking", "redacted_thinking"
"""The types of thinking blocks. The `encrypted_content` of their reasoning items starts with the type and a colon."""
NOT_SUPPORTED = ("background", "conversation", "previous_response_id", "prompt", "top_logprobs")
EFFORTS = {"minimal": "low"}
"""Anthropic's names of reasoning efforts, if they differ from those of Responses."""
SYSTEM_ROLES = ("system", "developer")
PART_TYPES = ("input_text", "output_text", "input_image", "input_file", "input_audio", "input_video")
_FOREIGN_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_CHOICES = {ours: theirs for theirs, ours in TOOL_CHOICES.items()}
_PARTS: TypeAdapter[list[InputPart]] = TypeAdapter(list[InputPart])


class MessageSettings(NamedTuple):
    """A model server's settings for converting a Responses request to a Messages request."""

    max_tokens: int
    """The limit for requests without `max_output_tokens`, because Messages requires one."""
    strict_tools: bool = False
    """Whether to send the tools' `strict` field, which older models reject."""
    thinking_budgets: dict[str, int] | None = None
    """Thinking budgets in tokens, by effort. If None, the effort itself is sent, which older models reject."""


def message_params(params: ResponseCreateParams, settings: MessageSettings) -> JsonObject:
    """Convert a request to the body of a Messages request, without `model`.

    Raise `DataError` for content that Messages does not support: hosted tools and their items, audio, video,
    `top_logprobs` and conversations that are stored at the endpoint.
    """
    if unsupported := [name for name in NOT_SUPPORTED if getattr(params, name)]:
        raise DataError(f"the request sets {', '.join(unsupported)}, which the Messages API does not support")
    system, messages = _conversation(params)
    fields: JsonObject = {
        "messages": messages,
        "max_tokens": params.max_output_tokens or settings.max_tokens,
        "system": system or None,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "metadata": {"user_id": params.user} if params.user else None,
    }
    if params.tools:
        fields["tools"] = [_tool(tool, settings) for tool in params.tools]
        fields["tool_choice"] = _tool_choice(params)
    fields |= _reasoning((params.reasoning or {}).get("effort"), settings)
    if form := _format((params.text or {}).get("format") or {}):
        fields["output_config"] = {**fields.get("output_config", {}), "format": form}
    return {name: value for name, value in fields.items() if value is not None}


def _tool(tool: ToolDefinition, settings: MessageSettings) -> ToolDefinition:
    if tool["type"] != "function":
        raise DataError(
            f"the request has a tool of type '{tool['type']}', which this model server does not support; use function "
            "tools, or name tools that run at Anthropic in extra_body"
        )
    parameters = with_clean_parameters(tool).get("parameters") or {}
    schema = {"type": "object", "properties": {}, **parameters}
    strict: ToolDefinition = {"strict": True} if settings.strict_tools and tool.get("strict") else {}
    description: ToolDefinition = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": tool["name"], **description, "input_schema": schema, **strict}


def _tool_choice(params: ResponseCreateParams) -> Mapping[str, object] | None:
    choice = params.tool_choice
    if isinstance(choice, str):
        chosen = {"type": _CHOICES[choice]}
    elif choice.get("type") == "function" and "name" in choice:
        chosen = {"type": "tool", "name": choice["name"]}
    else:
        raise DataError(
            f"the request has a tool_choice of type {choice.get('type')!r}, which Messages does not support"
        )
    if params.parallel_tool_calls is False and chosen["type"] != "none":
        return {**chosen, "disable_parallel_tool_use": True}
    return None if chosen == {"type": "auto"} else chosen


def _reasoning(effort: str | None, settings: MessageSettings) -> Mapping[str, object]:
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    if settings.thinking_budgets is None:
        return {"output_config": {"effort": EFFORTS.get(effort, effort)}}
    if effort not in settings.thinking_budgets:
        known = ", ".join(settings.thinking_budgets)
        raise DataError(
            f"the request has the reasoning effort '{effort}', but thinking_budgets has only {known}; use one of "
            "these efforts, or add a budget for the effort"
        )
    return {"thinking": {"type": "enabled", "budget_tokens": settings.thinking_budgets[effort]}}


def _format(form: Mapping[str, object]) -> Mapping[str, object] | None:
    if form.get("type") == "json_schema":
        return {"type": "json_schema", "schema": form["schema"]}
    if form.get("type") == "json_object":
        raise DataError("the request has a text.format of type 'json_object': Messages supports only 'json_schema'")
    return None


# Functions that convert the conversation


class Conversation(NamedTuple):
    """The system prompt and the turns of a conversation."""

    system: str
    messages: list[MessageJson]


@dataclass
class _Turns:
    """The turns of a request under construction. Adjacent blocks of the same role share a message."""

    messages: list[MessageJson] = field(default_factory=list)

    def add(self, role: str, blocks: Sequence[Block]) -> None:
        if blocks:
            self._content_of(role).extend(blocks)

    def add_result(self, block: Block) -> None:
        """Add the result of a tool call. Results come first in their message, because the endpoint requires that."""
        content = self._content_of("user")
        content.insert(sum(each["type"] == "tool_result" for each in content), block)

    def _content_of(self, role: str) -> list[Block]:
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        content: list[Block] = self.messages[-1]["content"]
        return content


def _conversation(params: ResponseCreateParams) -> Conversation:
    system = [params.instructions] if params.instructions else []
    turns = _Turns()
    for item in params.input_items:
        if isinstance(item, FunctionCallOutput):
            call_id, content = _known_id(item.call_id), _result(item.output)
            turns.add_result({"type": "tool_result", "tool_use_id": call_id, "content": content})
        elif isinstance(item, ReasoningItem):
            turns.add("assistant", thinking_blocks(item))
        elif isinstance(item, FunctionToolCall):
            (call,) = blocks_of_item(item)
            block: Any = {**call.model_dump(), "id": _known_id(item.call_id)}
            turns.add("assistant", [block])
        elif not isinstance(item, (EasyInputMessage, Message, OutputMessage)):
            raise DataError(f"the conversation has an item of type '{item.type}', which Messages does not support")
        elif item.role not in SYSTEM_ROLES:
            turns.add(item.role, _blocks(item.content))
        elif turns.messages:
            turns.add("system", _system_blocks(item))
        else:
            system += [block["text"] for block in _system_blocks(item)]
    return Conversation("\n\n".join(system), turns.messages)


def _system_blocks(item: EasyInputMessage | Message | OutputMessage) -> list[Block]:
    blocks = _blocks(item.content)
    if other := [block["type"] for block in blocks if block["type"] != "text"]:
        raise DataError(f"a system message has a part of type '{other[0]}', but Messages supports only text there")
    return blocks


def thinking_blocks(item: ReasoningItem) -> list[Block]:
    """Return a list with the original thinking block of a reasoning item.

    For reasoning of other endpoints, return an empty list, because Anthropic rejects blocks without its own signature.
    """
    kind, colon, seal = (item.encrypted_content or "").partition(":")
    if colon and kind == THINKING:
        return [{"type": THINKING, "thinking": item.text, "signature": seal}]
    return [{"type": REDACTED_THINKING, "data": seal}] if colon and kind == REDACTED_THINKING else []


def _known_id(call_id: str) -> str:
    # Replace characters that the endpoint rejects, because ids from other models may contain them.
    return _FOREIGN_ID_CHARACTER.sub("_", call_id)


def _blocks(content: str | Iterable[InputPart]) -> list[Block]:
    """Return the blocks of a message. Leave out empty texts, because the endpoint rejects them."""
    parts = [InputText(text=content)] if isinstance(content, str) else content
    blocks = [_block(part) for part in parts]
    return [block for block in blocks if block.get("text") != ""]


def _block(part: InputPart) -> Block:
    match part:
        case InputText() | OutputText():
            return {"type": "text", "text": part.text}
        case OutputRefusal():
            return {"type": "text", "text": part.refusal}
        case InputImage():
            return {"type": "image", "source": _source(part.image_url, part.image_url, part.file_id, "input_image")}
        case InputFile():
            title: Block = {"title": part.filename} if part.filename else {}
            source = _source(part.file_data, part.file_url, part.file_id, "input_file")
            return {"type": "document", "source": source, **title}
    raise DataError(f"the conversation has a part of type '{part.type}', which the Messages API does not support")


def _source(data: str | None, url: str | None, file_id: str | None, kind: str) -> Mapping[str, object]:
    if data is not None and data.startswith("data:"):
        head, _, encoded = data.removeprefix("data:").partition(",")
        media_type, *_ = head.split(";")
        if kind == "input_file" and media_type.startswith("text/"):
            return {"type": "text", "media_type": "text/plain", "data": _text(encoded, head)}
        if not head.endswith(";base64"):
            raise DataError(f"an {kind} part needs base64 data, such as 'data:image/png;base64,…'")
        return {"type": "base64", "media_type": media_type, "data": encoded}
    if url is not None:
        return {"type": "url", "url": url}
    if file_id is not None:
        return {"type": "file", "file_id": file_id}
    if data is not None:
        # Assume a PDF, because older clients send files without a media type.
        return {"type": "base64", "media_type": "application/pdf", "data": data}
    raise DataError(f"an {kind} part needs data, a URL or a file_id")


def _text(encoded: str, head: str) -> str:
    if not head.endswith(";base64"):
        return encoded
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except ValueError as error:
        raise DataError(
            f"an input_file part has text that cannot be decoded: {error}; send UTF-8 text in base64"
        ) from error


def _result(output: str | list[object]) -> str | list[Block]:
    """Convert a tool's output. Entries that are not message parts become JSON text."""
    if isinstance(output, str):
        return output
    return [block for entry in output for block in _blocks([_part(entry)])]


def _part(entry: object) -> InputPart:
    if isinstance(entry, dict):
        if entry.get("type") in PART_TYPES:
            return _PARTS.validate_python([entry])[0]
        if entry.get("type") == "text" and isinstance(entry.get("text"), str):
            return InputText(text=entry["text"])
    return InputText(text=entry if isinstance(entry, str) else orjson.dumps(entry).decode())

"""Convert between Responses and Anthropic Messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from nemo_gym.dialects.calls import UNREADABLE_ARGUMENTS, input_of_call
from nemo_gym.dialects.chat import new_id
from nemo_gym.dialects.chat_requests import reasoning_texts
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas import anthropic
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    InputFile,
    InputImage,
    InputItem,
    InputPart,
    InputText,
    OutputItem,
    OutputMessage,
    OutputRefusal,
    OutputText,
    ReasoningItem,
    Role,
    Summary,
)
from nemo_gym.schemas.responses import Response, ResponseCreateParams, ResponseUsage
from nemo_gym.schemas.shapes import RequestJson

TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
CONTENT_BLOCKS = (anthropic.TextBlock, anthropic.ImageBlock, anthropic.DocumentBlock)


# From Messages to Responses


def response_params_of_messages(params: anthropic.AnthropicCreateParams) -> ResponseCreateParams:
    """Convert a request to Responses, setting only fields that were given.

    Fields without an equivalent (`stop_sequences`, `top_k`, a thinking budget) are left out. Raise `DataError` for
    Anthropic's server-side tools and their results, because without them the task would change.
    """
    fields: JsonObject = {
        "input": [item for message in params.messages for item in items_of_message(message)],
        "instructions": _instructions(params.system),
        "model": params.model,
        "max_output_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "tools": [_function_tool(tool) for tool in params.tools or ()] or None,
        "text": _text(params),
    }
    if params.tool_choice is not None:
        fields |= _tool_choice(params.tool_choice)
    return ResponseCreateParams(**{name: value for name, value in fields.items() if value is not None})


def _instructions(system: str | list[anthropic.TextBlock] | None) -> str | None:
    if isinstance(system, list):
        system = "\n\n".join(block.text for block in system if block.text)
    return system or None


def _function_tool(tool: anthropic.ToolParam) -> Mapping[str, object]:
    if tool.input_schema is None:
        raise DataError(
            f"tool '{tool.name}': type '{tool.type}' without input_schema is run by Anthropic; this model server "
            "supports only tools with an input_schema"
        )
    function = {"type": "function", "name": tool.name, "parameters": tool.input_schema, "strict": bool(tool.strict)}
    return function if tool.description is None else {**function, "description": tool.description}


def _tool_choice(choice: anthropic.ToolChoice) -> RequestJson:
    fields: RequestJson = {}
    if choice.type != "tool":
        fields["tool_choice"] = TOOL_CHOICES[choice.type]
    elif choice.name is None:
        raise DataError("a tool_choice of type 'tool' needs the 'name' of the tool")
    else:
        fields["tool_choice"] = {"type": "function", "name": choice.name}
    if choice.disable_parallel_tool_use is not None:
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return fields


def _text(params: anthropic.AnthropicCreateParams) -> Mapping[str, object] | None:
    form = params.output_config.format if params.output_config else None
    return None if form is None else {"format": {"name": "answer", "strict": True, **form}}


def items_of_message(message: anthropic.MessageParam) -> list[InputItem]:
    """Convert one turn to items in order; adjacent text, image and document blocks become one message."""
    if isinstance(message.content, str):
        return [EasyInputMessage(role=message.role, content=message.content)]
    items: list[InputItem] = []
    for is_content, blocks in groupby(message.content, key=lambda block: isinstance(block, CONTENT_BLOCKS)):
        if is_content:
            items += _message(message.role, blocks)
        else:
            items += [_item(block) for block in blocks]
    return items


def _message(role: Role, blocks: Iterable[anthropic.ContentBlock]) -> list[InputItem]:
    filled = (block for block in blocks if not isinstance(block, anthropic.TextBlock) or block.text)
    parts: list[InputPart] = [_part(block, role) for block in filled]
    if not parts:
        return []
    if len(parts) == 1 and isinstance(parts[0], (InputText, OutputText)):
        # Use plain text, because more chat templates support it than a list with one part.
        return [EasyInputMessage(role=role, content=parts[0].text)]
    return [EasyInputMessage(role=role, content=parts)]


def _part(block: anthropic.ContentBlock, role: Role) -> InputPart:
    match block:
        case anthropic.TextBlock():
            return OutputText(text=block.text) if role == "assistant" else InputText(text=block.text)
        case anthropic.ImageBlock():
            return _image(block.source)
        case anthropic.DocumentBlock():
            return _document(block.source, block.title)
    raise DataError(f"a message has a block of type '{block.type}', which the Responses API does not support")


def _image(source: anthropic.Source) -> InputPart:
    if source.file_id is not None:
        return InputImage(file_id=source.file_id)
    return InputImage(image_url=source.url if source.url is not None else _data_url(source, "image"))


def _document(source: anthropic.Source, title: str | None) -> InputPart:
    if source.type == "text" and source.data is not None:
        return InputText(text=source.data if title is None else f"{title}\n\n{source.data}")
    name = {} if title is None else {"filename": title}
    if source.file_id is not None:
        return InputFile(file_id=source.file_id, **name)
    if source.url is not None:
        return InputFile(file_url=source.url, **name)
    return InputFile(file_data=_data_url(source, "document"), **name)


def _data_url(source: anthropic.Source, what: str) -> str:
    if source.data is None or source.media_type is None:
        raise DataError(
            f"the {what} source of type '{source.type}' needs 'url', 'file_id', or 'data' and 'media_type'"
        )
    return f"data:{source.media_type};base64,{source.data}"


def _item(block: anthropic.ContentBlock) -> InputItem:
    match block:
        case anthropic.ToolUseBlock():
            return FunctionToolCall(call_id=block.id, name=block.name, arguments=_arguments(block.input))
        case anthropic.ToolResultBlock():
            return FunctionCallOutput(call_id=block.tool_use_id, output=_tool_output(block.content))
        case anthropic.ThinkingBlock():
            return _reasoning(block.signature, [Summary(text=block.thinking)] if block.thinking else [])
        case anthropic.RedactedThinkingBlock():
            return _reasoning(block.data, [])
    raise DataError(f"the conversation has a block of type '{block.type}', which the Responses API does not support")


def _arguments(tool_input: Mapping[str, object]) -> str:
    unreadable = tool_input.get(UNREADABLE_ARGUMENTS)
    if len(tool_input) == 1 and isinstance(unreadable, str):
        return unreadable
    # Write a space after each comma and colon, as models do, so that a model sees its call unchanged.
    return json.dumps(tool_input, ensure_ascii=False)


def _tool_output(content: str | list[anthropic.ContentBlock] | None) -> str | list[object]:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [block.text for block in content if isinstance(block, anthropic.TextBlock)]
    if len(texts) == len(content):
        return "\n".join(texts)
    parts = [block if isinstance(block, anthropic.OtherBlock) else _part(block, "user") for block in content]
    return [part.model_dump(exclude_unset=True) for part in parts]


# From Responses to Messages


def message_of_response(response: Response) -> anthropic.AnthropicMessage:
    """Convert a response to Messages, without items of server-side tools."""
    return anthropic.AnthropicMessage(
        id=response.id,
        model=response.model,
        content=[block for item in response.output for block in blocks_of_item(item)],
        stop_reason=_stop_reason(response),
        usage=_usage(response.usage),
    )


def blocks_of_item(item: OutputItem) -> list[anthropic.AnswerBlock]:
    """Convert one Responses output item to the content blocks of an Anthropic message."""
    match item:
        case ReasoningItem():
            return [_thinking(item)]
        case OutputMessage() | EasyInputMessage():
            return [anthropic.TextBlock(text=text) for text in _texts(item.content) if text]
        case FunctionToolCall():
            return [anthropic.ToolUseBlock(id=item.call_id, name=item.name, input=input_of_call(item.arguments))]
    return []


def _texts(content: str | Sequence[InputPart]) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = [part for part in content if isinstance(part, (OutputText, OutputRefusal))]
    return [part.text if isinstance(part, OutputText) else part.refusal for part in parts]


def _stop_reason(response: Response) -> anthropic.StopReason:
    details = response.incomplete_details
    if details is not None:
        return "refusal" if details.reason == "content_filter" else "max_tokens"
    if response.tool_calls:
        return "tool_use"
    messages = [item for item in response.output if isinstance(item, OutputMessage)]
    if any(isinstance(part, OutputRefusal) for message in messages for part in message.content):
        return "refusal"
    return "end_turn"


def _usage(usage: ResponseUsage | None) -> anthropic.AnthropicUsage:
    if usage is None:
        return anthropic.AnthropicUsage()
    cached = usage.input_tokens_details.cached_tokens or 0
    return anthropic.AnthropicUsage(
        input_tokens=max(usage.input_tokens - cached, 0),
        output_tokens=usage.output_tokens,
        cache_read_input_tokens=cached,
    )


# Reasoning in both directions. A thinking block cannot hold all fields of a reasoning item. Its signature carries the
# others, because clients return signatures unchanged.


class _Seal(NamedTuple):
    """The fields by which a Responses endpoint recognises its own reasoning."""

    id: str
    encrypted_content: str | None

    def __str__(self) -> str:
        return f"{self.id}:{self.encrypted_content or ''}"


def _opened(signature: str) -> _Seal:
    identifier, colon, encrypted_content = signature.partition(":")
    if not colon:
        # Signatures of nemo_gym contain a colon, so another server wrote this one.
        return _Seal(new_id("rs"), None)
    return _Seal(identifier, encrypted_content or None)


def _thinking(item: ReasoningItem) -> anthropic.AnswerBlock:
    seal = str(_Seal(item.id, item.encrypted_content))
    text = "\n".join(reasoning_texts(item))
    return (
        anthropic.ThinkingBlock(thinking=text, signature=seal) if text else anthropic.RedactedThinkingBlock(data=seal)
    )


def _reasoning(signature: str, summary: list[Summary]) -> ReasoningItem:
    seal = _opened(signature)
    encrypted = {} if seal.encrypted_content is None else {"encrypted_content": seal.encrypted_content}
    return ReasoningItem(id=seal.id, summary=summary, **encrypted)

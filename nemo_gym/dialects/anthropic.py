"""Convert between Responses and Anthropic Messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from nemo_gym.dialects.chat import new_id
from nemo_gym.dialects.chat_requests import reasoning_texts
from nemo_gym.errors import DataError
from nemo_gym.jsonl import check_unicode
from nemo_gym.schemas.anthropic import (
    AnswerBlock,
    AnthropicCreateParams,
    AnthropicMessage,
    AnthropicUsage,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    MessageParam,
    OtherBlock,
    RedactedThinkingBlock,
    Source,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolChoice,
    ToolParam,
    ToolResultBlock,
    ToolUseBlock,
)
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

UNREADABLE_ARGUMENTS = "unreadable_arguments"
"""The only key of a tool's input if the model's arguments are not a JSON object."""
TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


# From Messages to Responses


def response_params_of_messages(params: AnthropicCreateParams) -> ResponseCreateParams:
    """Convert a request to Responses, setting only fields that were given.

    Fields without an equivalent (`stop_sequences`, `top_k`, a thinking budget) are left out. Raise `DataError` for
    tools that run at Anthropic and their results, because without them the task would change.
    """
    fields: dict[str, Any] = {
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


def _instructions(system: str | list[TextBlock] | None) -> str | None:
    if system is None or isinstance(system, str):
        return system or None
    return "\n\n".join(block.text for block in system if block.text) or None


def _function_tool(tool: ToolParam) -> dict[str, Any]:
    if tool.input_schema is None:
        raise DataError(
            f"tool '{tool.name}': type '{tool.type}' without input_schema is run by Anthropic; this model server "
            "supports only tools with an input_schema"
        )
    function = {"type": "function", "name": tool.name, "parameters": tool.input_schema, "strict": bool(tool.strict)}
    return function if tool.description is None else {**function, "description": tool.description}


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if choice.type != "tool":
        fields["tool_choice"] = TOOL_CHOICES[choice.type]
    elif choice.name is None:
        raise DataError("a tool_choice of type 'tool' needs the 'name' of the tool")
    else:
        fields["tool_choice"] = {"type": "function", "name": choice.name}
    if choice.disable_parallel_tool_use is not None:
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return fields


def _text(params: AnthropicCreateParams) -> dict[str, Any] | None:
    form = params.output_config.format if params.output_config else None
    if form is None:
        return None
    return {"format": {"name": "answer", "strict": True, **form}}


def items_of_message(message: MessageParam) -> list[InputItem]:
    """Convert one turn to items in order; adjacent text, image and document blocks become one message."""
    if isinstance(message.content, str):
        return [EasyInputMessage(role=message.role, content=message.content)]
    items: list[InputItem] = []
    for is_content, blocks in groupby(message.content, key=_is_content):
        if is_content:
            items += _message(message.role, blocks)
        else:
            items += [_item(block) for block in blocks]
    return items


def _is_content(block: ContentBlock) -> bool:
    return isinstance(block, (TextBlock, ImageBlock, DocumentBlock))


def _message(role: Role, blocks: Iterable[ContentBlock]) -> list[InputItem]:
    parts: list[InputPart] = [_part(block, role) for block in blocks if not _is_empty(block)]
    if not parts:
        return []
    if len(parts) == 1 and isinstance(parts[0], (InputText, OutputText)):
        # More chat templates support a plain text than a list with one part.
        return [EasyInputMessage(role=role, content=parts[0].text)]
    return [EasyInputMessage(role=role, content=parts)]


def _is_empty(block: ContentBlock) -> bool:
    return isinstance(block, TextBlock) and not block.text


def _part(block: ContentBlock, role: Role) -> InputPart:
    match block:
        case TextBlock():
            return OutputText(text=block.text) if role == "assistant" else InputText(text=block.text)
        case ImageBlock():
            return _image(block.source)
        case DocumentBlock():
            return _document(block.source, block.title)
    raise DataError(f"a message has a block of type '{block.type}', which the Responses API does not support")


def _image(source: Source) -> InputPart:
    if source.file_id is not None:
        return InputImage(file_id=source.file_id)
    return InputImage(image_url=source.url if source.url is not None else _data_url(source, "image"))


def _document(source: Source, title: str | None) -> InputPart:
    if source.type == "text" and source.data is not None:
        return InputText(text=source.data if title is None else f"{title}\n\n{source.data}")
    name = {} if title is None else {"filename": title}
    if source.file_id is not None:
        return InputFile(file_id=source.file_id, **name)
    if source.url is not None:
        return InputFile(file_url=source.url, **name)
    return InputFile(file_data=_data_url(source, "document"), **name)


def _data_url(source: Source, what: str) -> str:
    if source.data is None or source.media_type is None:
        raise DataError(
            f"the {what} source of type '{source.type}' needs 'url', 'file_id', or 'data' and 'media_type'"
        )
    return f"data:{source.media_type};base64,{source.data}"


def _item(block: ContentBlock) -> InputItem:
    match block:
        case ToolUseBlock():
            return FunctionToolCall(call_id=block.id, name=block.name, arguments=_arguments(block.input))
        case ToolResultBlock():
            return FunctionCallOutput(call_id=block.tool_use_id, output=_tool_output(block.content))
        case ThinkingBlock():
            return _reasoning(block.signature, [Summary(text=block.thinking)] if block.thinking else [])
        case RedactedThinkingBlock():
            return _reasoning(block.data, [])
    raise DataError(f"the conversation has a block of type '{block.type}', which the Responses API does not support")


def _arguments(tool_input: dict[str, Any]) -> str:
    unreadable = tool_input.get(UNREADABLE_ARGUMENTS)
    if len(tool_input) == 1 and isinstance(unreadable, str):
        return unreadable
    # With spaces, as models write it, so that the model sees its call as it wrote it.
    return json.dumps(tool_input, ensure_ascii=False)


def _tool_output(content: str | list[ContentBlock] | None) -> str | list[Any]:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [block.text for block in content if isinstance(block, TextBlock)]
    if len(texts) == len(content):
        return "\n".join(texts)
    return [
        block.model_dump(exclude_unset=True)
        if isinstance(block, OtherBlock)
        else _part(block, "user").model_dump(exclude_unset=True)
        for block in content
    ]


# From Responses to Messages


def message_of_response(response: Response) -> AnthropicMessage:
    """Convert a response to Messages, without items of tools that ran at the endpoint."""
    return AnthropicMessage(
        id=response.id,
        model=response.model,
        content=[block for item in response.output for block in blocks_of_item(item)],
        stop_reason=_stop_reason(response),
        usage=_usage(response.usage),
    )


def blocks_of_item(item: OutputItem) -> list[AnswerBlock]:
    """Convert one item to the blocks of an answer."""
    match item:
        case ReasoningItem():
            return [_thinking(item)]
        case OutputMessage() | EasyInputMessage():
            return [TextBlock(text=text) for text in _texts(item.content) if text]
        case FunctionToolCall():
            return [ToolUseBlock(id=item.call_id, name=item.name, input=_tool_input(item.arguments))]
    return []


def _texts(content: str | Sequence[InputPart]) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = [part for part in content if isinstance(part, (OutputText, OutputRefusal))]
    return [part.text if isinstance(part, OutputText) else part.refusal for part in parts]


def _tool_input(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse_constant)
        check_unicode(value)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {UNREADABLE_ARGUMENTS: arguments}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _stop_reason(response: Response) -> StopReason:
    details = response.incomplete_details
    if details is not None:
        return "refusal" if details.reason == "content_filter" else "max_tokens"
    if response.tool_calls:
        return "tool_use"
    messages = [item for item in response.output if isinstance(item, OutputMessage)]
    if any(isinstance(part, OutputRefusal) for message in messages for part in message.content):
        return "refusal"
    return "end_turn"


def _usage(usage: ResponseUsage | None) -> AnthropicUsage:
    if usage is None:
        return AnthropicUsage()
    cached = usage.input_tokens_details.cached_tokens or 0
    return AnthropicUsage(
        input_tokens=max(usage.input_tokens - cached, 0),
        output_tokens=usage.output_tokens,
        cache_read_input_tokens=cached,
    )


# Reasoning, both ways: the signature, which clients return unread, carries fields that a thinking block lacks


class _Seal(NamedTuple):
    """The fields by which a Responses endpoint recognises its own reasoning."""

    id: str
    encrypted_content: str | None

    def __str__(self) -> str:
        return f"{self.id}:{self.encrypted_content or ''}"


def _opened(signature: str) -> _Seal:
    identifier, colon, encrypted_content = signature.partition(":")
    if not colon:
        # Another server's signature, in base64, which has no meaning here.
        return _Seal(new_id("rs"), None)
    return _Seal(identifier, encrypted_content or None)


def _thinking(item: ReasoningItem) -> AnswerBlock:
    seal = str(_Seal(item.id, item.encrypted_content))
    text = "\n".join(reasoning_texts(item))
    return ThinkingBlock(thinking=text, signature=seal) if text else RedactedThinkingBlock(data=seal)


def _reasoning(signature: str, summary: list[Summary]) -> ReasoningItem:
    seal = _opened(signature)
    if seal.encrypted_content is None:
        return ReasoningItem(id=seal.id, summary=summary)
    return ReasoningItem(id=seal.id, summary=summary, encrypted_content=seal.encrypted_content)

"""Convert requests from Responses to Chat Completions: items to messages, parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.dialects.chat_answers import OPAQUE, OPAQUE_REASONING
from nemo_gym.dialects.chat_parts import assistant_text, chat_parts, media_parts, refusals, tool_content
from nemo_gym.dialects.thinking import wrapped_in_think_tags
from nemo_gym.errors import DataError, UnsupportedContentError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.chat import ChatCompletionCreateParams
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    InputItem,
    InputText,
    Message,
    OutputMessage,
    ReasoningItem,
)
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.shapes import MessageJson, Part, RequestJson, ToolCall, ToolDefinition
from nemo_gym.schemas.tokens import TOKEN_METADATA_FIELDS, TokenIDLogProbMixin

NOT_SUPPORTED = ("background", "conversation", "max_tool_calls", "previous_response_id", "prompt")
SAME_NAME = ("prompt_cache_key", "safety_identifier", "service_tier", "store", "temperature", "top_p", "user")


def chat_params(
    params: ResponseCreateParams,
    *,
    keeps_tokens: bool,
    keeps_reasoning: bool = True,
    sends_media: bool = True,
    kind: type[ChatCompletionCreateParams] = ChatCompletionCreateParams,
) -> ChatCompletionCreateParams:
    """Convert a request to Chat Completions, setting only fields that were given.

    The instructions and the first system and developer messages become one system message, because chat templates
    accept only one. Raise `DataError` for unsupported content: hosted tools and their items, files by URL.
    """
    unsupported = [name for name in NOT_SUPPORTED if getattr(params, name)]
    if unsupported or params.truncation == "auto":
        names = ", ".join([*unsupported, *(["truncation"] if params.truncation == "auto" else [])])
        raise DataError(f"the request sets {names}, which Chat Completions does not support. Leave it out.")
    if params.tool_choice == "required" and not params.tools:
        raise DataError("tool_choice is 'required', but the request has no tools. Add tools, or remove tool_choice.")
    items = _items(params)
    leading = _leading_instructions(items)
    messages = messages_of_items(
        items[len(leading) :], keeps_tokens=keeps_tokens, keeps_reasoning=keeps_reasoning, sends_media=sends_media
    )
    instructions = [text for text in (params.instructions, *map(_text_of, leading)) if text]
    if instructions:
        messages.insert(0, {"role": "system", "content": "\n\n".join(instructions)})
    fields: JsonObject = {"messages": messages, "model": params.model, "metadata": params.metadata}
    fields |= {name: getattr(params, name) for name in SAME_NAME}
    # Use `max_tokens`, because fewer engines know the newer name `max_completion_tokens`.
    fields["max_tokens"] = params.max_output_tokens
    fields["reasoning_effort"] = (params.reasoning or {}).get("effort")
    if params.top_logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": params.top_logprobs}
    fields |= _text_fields(params.text or {})
    if params.tools:
        fields |= _tool_fields(params)
    return kind(**{name: value for name, value in fields.items() if value is not None})


def _items(params: ResponseCreateParams) -> list[InputItem]:
    if isinstance(params.input, str):
        return [EasyInputMessage(role="user", content=[InputText(text=params.input)])]
    return params.input


def _leading_instructions(items: Iterable[InputItem]) -> list[EasyInputMessage | Message]:
    leading: list[EasyInputMessage | Message] = []
    for item in items:
        if not isinstance(item, (EasyInputMessage, Message)) or item.role not in {"system", "developer"}:
            break
        leading.append(item)
    return leading


def _text_of(message: EasyInputMessage | Message) -> str:
    parts = chat_parts(message.content)
    if isinstance(parts, str):
        return parts
    other = next((part["type"] for part in parts if part["type"] != "text"), None)
    if other is not None:
        raise DataError(
            f"a {message.role} message has a part of type '{other}', but only text is supported. Remove this part."
        )
    return "\n\n".join(part["text"] for part in parts)


def _text_fields(text: Mapping[str, Any]) -> Mapping[str, object]:
    fields: dict[str, object] = {"verbosity": text.get("verbosity")}
    form = text.get("format") or {}
    if form.get("type") == "json_schema":
        schema = {key: value for key, value in form.items() if key != "type"}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form.get("type") == "json_object":
        fields["response_format"] = {"type": "json_object"}
    return fields


def _tool_fields(params: ResponseCreateParams) -> RequestJson:
    fields: RequestJson = {"tools": [_chat_tool(tool) for tool in params.tools]}
    # Send `tool_choice` only if it was given, because some engines must be started with support for it.
    if "tool_choice" in params.model_fields_set:
        choice = params.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
            choice = {"type": "function", "function": {"name": choice["name"]}}
        elif isinstance(choice, dict) and choice.get("type") == "allowed_tools" and "allowed_tools" not in choice:
            choice = {"type": "allowed_tools", "allowed_tools": _allowed(choice)}
        fields["tool_choice"] = choice
    if "parallel_tool_calls" in params.model_fields_set:
        fields["parallel_tool_calls"] = params.parallel_tool_calls
    return fields


def _allowed(choice: Mapping[str, Any]) -> Mapping[str, object]:
    tools = [
        {"type": "function", "function": {"name": tool["name"]}}
        for tool in choice.get("tools") or []
        if isinstance(tool, dict) and tool.get("type") == "function" and "name" in tool
    ]
    return {"mode": choice.get("mode") or "auto", "tools": tools}


def _chat_tool(tool: ToolDefinition) -> ToolDefinition:
    if tool["type"] != "function":
        raise UnsupportedContentError(
            f"the request has a tool of type '{tool['type']}', which Chat Completions does not support; "
            "use function tools with this model server"
        )
    # Do not send `strict`. Few engines support it, and it would change the answers of those that do.
    unsent = {"type", "strict"}
    function = {key: value for key, value in tool.items() if key not in unsent and value is not None}
    return {"type": "function", "function": function}


@dataclass
class _Turn:
    """One turn of the assistant: the reasoning, texts and calls of one chat message."""

    keeps_reasoning: bool
    keeps_tokens: bool
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    tokens: JsonObject = field(default_factory=dict)
    opaque: JsonObject = field(default_factory=dict)
    """The provider's own state, which it needs back."""

    def add(self, item: InputItem) -> None:
        if isinstance(item, ReasoningItem):
            self.reasoning += reasoning_texts(item)
            self.opaque |= _opaque(item, *OPAQUE_REASONING)
        elif isinstance(item, FunctionToolCall):
            function = {"name": item.name, "arguments": item.arguments}
            call: ToolCall = {"id": item.call_id, "type": "function", "function": function}
            call |= _opaque(item, OPAQUE)
            self.calls.append(call)
        elif isinstance(item, (OutputMessage, EasyInputMessage)):
            self.texts.append(assistant_text(item.content))
            self.refusals += refusals(item.content)
            self.opaque |= _opaque(item, OPAQUE)
        if self.keeps_tokens and isinstance(item, TokenIDLogProbMixin):
            # Leave out the times, which engines do not read.
            names = TOKEN_METADATA_FIELDS[:-1]
            self.tokens = {name: value for name in names if (value := getattr(item, name)) is not None}

    def messages(self) -> list[Any]:
        """Return a list with the chat message, or an empty list if there is only reasoning that is not kept."""
        if not (self.texts or self.calls or self.opaque or (self.reasoning and self.keeps_reasoning)):
            return []
        message: JsonObject = {"role": "assistant", "content": self._content()}
        if self.refusals:
            message["refusal"] = "".join(self.refusals)
        if self.calls:
            message["tool_calls"] = self.calls
        return [{**message, **self.opaque, **self.tokens}]

    def _content(self) -> str | None:
        thinking = wrapped_in_think_tags(self.reasoning) if self.keeps_reasoning else ""
        return thinking + "".join(self.texts) or (None if self.calls else "")


def _opaque(item: InputItem, *names: str) -> Any:
    # Classes of items in server folders may lack extra fields.
    return {name: value for name in names if (value := (item.model_extra or {}).get(name))}


@dataclass
class ConversationState:
    """Converter of items to chat messages. Consecutive items of the assistant become one message."""

    return_token_id_information: bool
    uses_reasoning_parser: bool = True
    """Ignored, because it concerns answers only. It exists because server folders may pass it."""
    keeps_reasoning: bool = True
    sends_media: bool = False
    """Whether to send images and other media of tool outputs in a user message. Otherwise, they are rejected."""
    messages: list[MessageJson] = field(default_factory=list)
    """The finished messages, without the assistant's current turn."""
    _turn: _Turn | None = None
    _media: list[Part] = field(default_factory=list)
    """Images and other media of the last tool outputs, to be sent after them in a user message."""

    def add(self, item: InputItem) -> None:
        if isinstance(item, FunctionCallOutput):
            self._end_turn()
            self._add_output(item)
            return
        if not is_from_assistant(item):
            self.flush_assistant()
            self.messages.append(_message_of(item))
            return
        self._flush_media()
        # The last item of each model call has token ids, which must not be merged with those of the next call.
        if self._turn is not None and self._turn.tokens:
            self.flush_assistant()
        self._turn = self._turn or _Turn(self.keeps_reasoning, self.return_token_id_information)
        self._turn.add(item)

    def flush_assistant(self) -> None:
        """End the assistant's turn, if there is one, and append the pending media of tool outputs."""
        self._end_turn()
        self._flush_media()

    def _end_turn(self) -> None:
        if self._turn is not None:
            self.messages += self._turn.messages()
            self._turn = None

    def _add_output(self, item: FunctionCallOutput) -> None:
        content, media = tool_content(item.output, sends_media=self.sends_media)
        self.messages.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
        if media:
            self._media += media_parts(item.call_id, media)

    def _flush_media(self) -> None:
        # Add media only after the last output, because endpoints accept no message between a turn's tool outputs.
        if self._media:
            self.messages.append({"role": "user", "content": self._media})
            self._media = []


def reasoning_texts(item: ReasoningItem) -> list[str]:
    """Return the paragraphs of a reasoning item: its summary, or else the `content` that engines write."""
    if item.summary:
        return [part.text for part in item.summary]
    return [part["text"] for part in item.content or [] if isinstance(part, dict) and part.get("text")]


def messages_of_items(
    items: Iterable[InputItem], *, keeps_tokens: bool, keeps_reasoning: bool = True, sends_media: bool = True
) -> list[MessageJson]:
    """Convert items to chat messages; consecutive assistant items become one message."""
    conversation = ConversationState(keeps_tokens, keeps_reasoning=keeps_reasoning, sends_media=sends_media)
    for item in items:
        conversation.add(item)
    conversation.flush_assistant()
    return conversation.messages


def is_from_assistant(item: InputItem) -> bool:
    if isinstance(item, EasyInputMessage):
        return item.role == "assistant"
    return isinstance(item, (OutputMessage, FunctionToolCall, ReasoningItem))


def _message_of(item: InputItem) -> MessageJson:
    if isinstance(item, (EasyInputMessage, Message)):
        return {"role": item.role, "content": chat_parts(item.content)}
    raise UnsupportedContentError(
        f"the conversation has an item of type '{item.type}', which Chat Completions does not support"
    )

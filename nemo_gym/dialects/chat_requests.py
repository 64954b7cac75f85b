"""From Responses to Chat Completions: items become messages, parameters take their other names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.dialects.chat_parts import assistant_text, chat_parts, refusals, tool_content
from nemo_gym.dialects.thinking import wrapped_in_think_tags
from nemo_gym.errors import DataError
from nemo_gym.schemas.chat import ChatCompletionCreateParams
from nemo_gym.schemas.items import (
    TOKEN_METADATA_FIELDS,
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    InputItem,
    InputPart,
    Message,
    OutputMessage,
    ReasoningItem,
    TokenIDLogProbMixin,
)
from nemo_gym.schemas.responses import ResponseCreateParams

ChatMessage = dict[str, Any]

SAME_NAME = ("service_tier", "store", "temperature", "top_p", "user")


def chat_params(
    params: ResponseCreateParams, *, keeps_reasoning: bool, keeps_tokens: bool
) -> ChatCompletionCreateParams:
    """The same request for Chat Completions; only what was asked for is set.

    Raises `DataError` for what Chat Completions cannot say: hosted tools and their items, files by address.
    """
    messages = messages_of_items(params.input_items, keeps_reasoning=keeps_reasoning, keeps_tokens=keeps_tokens)
    if params.instructions:
        messages.insert(0, {"role": "system", "content": params.instructions})
    fields: dict[str, Any] = {"messages": messages, "model": params.model, "metadata": params.metadata}
    fields |= {name: getattr(params, name) for name in SAME_NAME}
    # `max_completion_tokens` is the newer name, and fewer engines know it.
    fields["max_tokens"] = params.max_output_tokens
    fields["reasoning_effort"] = (params.reasoning or {}).get("effort")
    if params.top_logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": params.top_logprobs}
    fields |= _text_fields(params.text or {})
    if params.tools:
        fields |= _tool_fields(params)
    return ChatCompletionCreateParams(**{name: value for name, value in fields.items() if value is not None})


def _text_fields(text: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"verbosity": text.get("verbosity")}
    form = text.get("format") or {}
    if form.get("type") == "json_schema":
        schema = {key: value for key, value in form.items() if key != "type"}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form.get("type") == "json_object":
        fields["response_format"] = {"type": "json_object"}
    return fields


def _tool_fields(params: ResponseCreateParams) -> dict[str, Any]:
    fields: dict[str, Any] = {"tools": [_chat_tool(tool) for tool in params.tools]}
    # Engines refuse `tool_choice` without tools, and some refuse it where they were not started for it.
    if "tool_choice" in params.model_fields_set:
        choice = params.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
            choice = {"type": "function", "function": {"name": choice["name"]}}
        fields["tool_choice"] = choice
    if "parallel_tool_calls" in params.model_fields_set:
        fields["parallel_tool_calls"] = params.parallel_tool_calls
    return fields


def _chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        raise DataError(
            f"the request offers a tool of type '{tool['type']}', which Chat Completions does not have; "
            "only function tools can be offered to this model server"
        )
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": function}


@dataclass
class _Turn:
    """What the assistant thought, said and called at one go; it is one chat message."""

    keeps_reasoning: bool
    keeps_tokens: bool
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, Any] = field(default_factory=dict)

    def ends_before(self, item: InputItem) -> bool:
        """Whether the item begins another turn. After a call it does not: the tool's answer must follow the call."""
        if self.tokens:
            return True
        return bool(self.texts or self.refusals) and not self.calls and not isinstance(item, FunctionToolCall)

    def add(self, item: InputItem) -> None:
        """Take one item of the assistant's."""
        if isinstance(item, ReasoningItem):
            self.reasoning += reasoning_texts(item)
        elif isinstance(item, FunctionToolCall):
            function = {"name": item.name, "arguments": item.arguments}
            self.calls.append({"id": item.call_id, "type": "function", "function": function})
        elif isinstance(item, (OutputMessage, EasyInputMessage)):
            self.texts.append(assistant_text(item.content))
            self.refusals += refusals(item.content)
        if isinstance(item, TokenIDLogProbMixin):
            self.tokens = {name: value for name in TOKEN_METADATA_FIELDS if (value := getattr(item, name)) is not None}

    def messages(self) -> list[ChatMessage]:
        """The chat message; none where there was nothing but reasoning that is not kept."""
        if not (self.texts or self.calls or (self.reasoning and self.keeps_reasoning)):
            return []
        message: ChatMessage = {"role": "assistant", "content": self._content()}
        if self.refusals:
            message["refusal"] = "".join(self.refusals)
        if self.calls:
            message["tool_calls"] = self.calls
        if self.keeps_tokens:
            message |= self.tokens
        return [message]

    def _content(self) -> str | None:
        thinking = wrapped_in_think_tags(self.reasoning) if self.keeps_reasoning else ""
        return thinking + "".join(self.texts) or (None if self.calls else "")


@dataclass
class ConversationState:
    """A conversation on its way from items to chat messages; what the assistant does at one go is one message."""

    return_token_id_information: bool
    uses_reasoning_parser: bool = True
    messages: list[ChatMessage] = field(default_factory=list)
    """What is whole; the assistant's turn is held back until it ends."""
    _turn: _Turn | None = None

    def add(self, item: InputItem) -> None:
        """Take the next item."""
        if not _is_the_assistants(item):
            self.flush_assistant()
            self.messages.append(_message_of(item))
            return
        if self._turn is not None and self._turn.ends_before(item):
            self.flush_assistant()
        self._turn = self._turn or _Turn(self.uses_reasoning_parser, self.return_token_id_information)
        self._turn.add(item)

    def flush_assistant(self) -> None:
        """End the assistant's turn, if there is one."""
        if self._turn is not None:
            self.messages += self._turn.messages()
            self._turn = None


def reasoning_texts(item: ReasoningItem) -> list[str]:
    """The paragraphs of a reasoning item: its summary, or where that is empty what engines put into `content`."""
    if item.summary:
        return [part.text for part in item.summary]
    return [part["text"] for part in item.content or [] if isinstance(part, dict) and part.get("text")]


def messages_of_items(items: Iterable[InputItem], *, keeps_reasoning: bool, keeps_tokens: bool) -> list[ChatMessage]:
    """A conversation as chat messages: what the assistant did at one go becomes one message."""
    conversation = ConversationState(keeps_tokens, keeps_reasoning)
    for item in items:
        conversation.add(item)
    conversation.flush_assistant()
    return conversation.messages


def _is_the_assistants(item: InputItem) -> bool:
    if isinstance(item, EasyInputMessage):
        return item.role == "assistant"
    return isinstance(item, (OutputMessage, FunctionToolCall, ReasoningItem))


def _message_of(item: InputItem) -> ChatMessage:
    if isinstance(item, FunctionCallOutput):
        return {"role": "tool", "tool_call_id": item.call_id, "content": tool_content(item.output)}
    if isinstance(item, (EasyInputMessage, Message)):
        content: str | Sequence[InputPart] = item.content
        return {"role": item.role, "content": chat_parts(content)}
    raise DataError(
        f"the conversation holds an item of type '{getattr(item, 'type', type(item).__name__)}', "
        "which Chat Completions does not have"
    )

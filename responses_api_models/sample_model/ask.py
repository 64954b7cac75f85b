"""The parts of a request that the policy uses, parsed from a Responses or a Chat Completions request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nemo_gym.jsonl import JsonObject

Mode = Literal["auto", "none", "required"]

_RANK = {"reasoning": 0, "message": 1, "function_call": 2}
"""The order of item types within one turn. An item of a lower rank than the previous one starts a new turn."""


class RequestError(ValueError):
    """An error for a request that the policy cannot answer. The message names the field and the reason."""


@dataclass(frozen=True)
class FunctionTool:
    """A tool that the model may call. `parameters` is its JSON Schema or None."""

    name: str
    parameters: object


@dataclass(frozen=True)
class Conversation:
    """The size of a conversation so far."""

    turns: int
    """The number of the model's turns."""
    tool_turns: int
    """The number of the model's turns with a tool call."""
    words: int
    """The number of whitespace-separated words in all texts."""


@dataclass(frozen=True)
class Ask:
    conversation: Conversation
    tools: tuple[FunctionTool, ...] = ()
    """The function tools that may be called now."""
    tool_choice: Mode = "auto"
    most_calls: int | None = None
    """The request's limit on tool calls in one turn, or None."""
    answer_format: JsonObject | None = None
    """`{type: json_schema, schema}` or `{type: json_object}` if the answer must be JSON."""


def ask_of_responses(body: JsonObject) -> Ask:
    """Parse a Responses API request."""
    tools = [FunctionTool(tool["name"], tool.get("parameters")) for tool in _functions(body)]
    return _ask(body, tools, _conversation_of_items(_items(body), body.get("instructions")), body.get("text") or {})


def prompt_of_responses(body: JsonObject) -> list[JsonObject]:
    """Return the items of a Responses API request, with the instructions as a first message."""
    instructions = body.get("instructions")
    return [*([{"role": "system", "content": instructions}] if instructions else []), *_items(body)]


def _items(body: JsonObject) -> list[JsonObject]:
    items = body["input"]
    return [{"type": "message", "role": "user", "content": items}] if isinstance(items, str) else items


def ask_of_chat(body: JsonObject) -> Ask:
    """Parse a Chat Completions request."""
    functions = [tool["function"] for tool in _functions(body) if isinstance(tool.get("function"), dict)]
    tools = [FunctionTool(str(function.get("name")), function.get("parameters")) for function in functions]
    answer = body.get("response_format") or {}
    flat = {**answer, **answer["json_schema"]} if isinstance(answer.get("json_schema"), dict) else answer
    return _ask(body, tools, _conversation_of_messages(body["messages"]), {"format": flat})


def _functions(body: JsonObject) -> list[JsonObject]:
    return [tool for tool in body.get("tools") or () if tool.get("type") == "function"]


def _ask(body: JsonObject, tools: list[FunctionTool], conversation: Conversation, text: JsonObject) -> Ask:
    choice = body.get("tool_choice") or "auto"
    mode, names = _choice(choice)
    unknown = sorted(set(names or ()) - {tool.name for tool in tools})
    if unknown:
        known = ", ".join(tool.name for tool in tools) or "none"
        raise RequestError(f"tool_choice names {unknown[0]!r}, but the request's function tools are: {known}")
    if mode == "required" and not tools:
        raise RequestError(f"tool_choice is {choice!r}, but the request has no function tool to call")
    limits = [body["max_tool_calls"]] if body.get("max_tool_calls") is not None else []
    # If tool_choice names a function, call it exactly once, as real endpoints do.
    is_named = isinstance(choice, dict) and choice.get("type") == "function"
    if is_named or body.get("parallel_tool_calls") is False:
        limits.append(1)
    answer_format = text.get("format") or {}
    return Ask(
        conversation,
        tools=tuple(tool for tool in tools if names is None or tool.name in names),
        tool_choice=mode,
        most_calls=min(limits, default=None),
        answer_format=answer_format if answer_format.get("type") in {"json_schema", "json_object"} else None,
    )


def _choice(choice: str | JsonObject) -> tuple[Mode, list[str] | None]:
    """Return the mode and the names of the allowed functions. The names are None if all functions are allowed."""
    if isinstance(choice, dict):
        inner = choice.get("allowed_tools", choice)
        if choice.get("type") == "allowed_tools":
            return _mode(inner.get("mode")), [_name(tool) for tool in inner.get("tools", ())]
        if choice.get("type") == "function":
            return "required", [_name(choice)]
        return _mode(choice.get("mode")), None
    return _mode(choice), None


def _mode(text: object) -> Mode:
    return "none" if text == "none" else "required" if text == "required" else "auto"


def _name(tool: JsonObject) -> str:
    """Return a function's name, which Chat Completions nests one level deeper than the Responses API does."""
    return str(tool.get("function", tool).get("name"))


def _conversation_of_items(items: Iterable[JsonObject], instructions: str | None) -> Conversation:
    turns = tool_turns = 0
    previous = len(_RANK)
    has_called = False
    words = _words(instructions)
    for item in items:
        kind = item.get("type", "message")
        words += sum(_words(item.get(field)) for field in ("content", "arguments", "output"))
        if kind not in _RANK or (kind == "message" and item.get("role") != "assistant"):
            previous = len(_RANK)
            continue
        rank = _RANK[kind]
        if rank < previous or (kind == "message" and rank == previous):
            turns += 1
            has_called = False
        if kind == "function_call" and not has_called:
            tool_turns += 1
            has_called = True
        previous = rank
    return Conversation(turns, tool_turns, words)


def _conversation_of_messages(messages: Iterable[JsonObject]) -> Conversation:
    turns = tool_turns = words = 0
    for message in messages:
        calls = message.get("tool_calls") or ()
        words += _words(message.get("content"))
        words += sum(_words(call.get("function", {}).get("arguments")) for call in calls)
        if message.get("role") == "assistant":
            turns += 1
            tool_turns += bool(calls)
    return Conversation(turns, tool_turns, words)


def _words(content: object) -> int:
    """Count the words of a text or of a list of content parts."""
    if isinstance(content, str):
        return len(content.split())
    if isinstance(content, list):
        return sum(_words(part.get("text")) for part in content if isinstance(part, dict))
    return 0

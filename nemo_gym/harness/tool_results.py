"""Results of the environment's tools, as they passed through the gateway over MCP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from nemo_gym.harness.keys import TOO_DEEP, canonical, spaced_once, text_of, texts_within, written
from nemo_gym.jsonl import loads_exact
from nemo_gym.schemas.mcp import normalize_tool_name
from nemo_gym.schemas.shapes import Item, Part

SEPARATORS = ("__", ".", "/", ":")
"""Strings with which programs join the name of an MCP server and the name of a tool."""


class ToolResult(NamedTuple):
    """The result of one tool call."""

    name: str
    arguments: Mapping[str, object]
    output: str | list[Part]
    answered: int
    """The number of the model's answers that the program had received when it made the call."""
    is_error: bool = False

    def answers(self, call: Item) -> bool:
        """Return whether this is a result for a model's call. A program may coerce or complete the arguments."""
        if not is_named(call["name"], self.name):
            return False
        try:
            wanted = loads_exact(call["arguments"] or "{}")
        except ValueError:
            return False
        if not isinstance(wanted, dict):
            return False
        return all(
            name in self.arguments and _is_same(value, self.arguments[name])
            for name, value in wanted.items()
            if value is not None
        )

    def is_shown_by(self, output: object) -> bool:
        """Return whether a program's output of a tool has the same text as this result."""
        text = spaced_once(text_of(self.output))
        return any(spaced_once(each) == text for each in texts_within(output))


def is_named(name: str, tool: str) -> bool:
    """Return whether a function's name is that of a tool, possibly after the name of an MCP server."""
    return normalize_tool_name(name) == tool or any(name.endswith(f"{each}{tool}") for each in SEPARATORS)


def results_of(request: bytes, reply: bytes, answered: int) -> list[ToolResult]:
    """Return the results of the tool calls in an MCP request. Bodies that are not MCP have none."""
    calls = {_id(each): each.get("params") for each in _messages(request) if each.get("method") == "tools/call"}
    results = []
    for message in _messages(reply):
        params = calls.pop(_id(message), None)
        if isinstance(params, dict) and isinstance(params.get("name"), str):
            arguments = params.get("arguments")
            arguments = arguments if isinstance(arguments, dict) else {}
            results.append(ToolResult(params["name"], arguments, _output(message), answered, _is_error(message)))
    return results


def _messages(body: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON-RPC messages of a body, which may be an event stream."""
    lines = [line.removeprefix(b"data:") for line in body.splitlines() if line.startswith(b"data:")]
    for text in lines or [body]:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))


def _id(message: Mapping[str, object]) -> str:
    return written(message.get("id"))


def _is_error(message: Mapping[str, object]) -> bool:
    result = message.get("result")
    return not isinstance(result, dict) or result.get("isError") is True


def _output(message: Mapping[str, object]) -> str | list[Part]:
    result = message.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        error = message.get("error")
        return str(error.get("message")) if isinstance(error, dict) else written(result)
    parts = [_part(block) for block in content]
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _part(block: object) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "input_text", "text": text}
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return {"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"}
        case {"type": "audio", "data": str(data), "mimeType": str(kind)}:
            sound = {"data": data, "format": kind.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": sound}
    return {"type": "input_text", "text": written(block)}


def _is_same(wanted: object, sent: object) -> bool:
    if isinstance(wanted, dict | list) or isinstance(sent, dict | list):
        return canonical(wanted) == canonical(sent) != TOO_DEEP
    return str(wanted) == str(sent)

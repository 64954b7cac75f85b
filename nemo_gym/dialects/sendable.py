"""Bring requests of Chat Completions and Responses into a form that strict endpoints accept."""

from __future__ import annotations

import operator
from typing import Any

from nemo_gym.dialects.calls import GENERATED_TOKENS, sendable_arguments
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.shapes import ToolDefinition

VALUES = frozenset({"const", "default", "enum", "examples"})
"""The keywords of a JSON Schema that hold values of the model's, in which null is a value."""


def sendable(fields: JsonObject) -> JsonObject:
    """Make the arguments of all calls in a request parsable, and remove null keywords from the schemas of its tools.

    A message or item with token ids stays unchanged, because its text must match its tokens.
    """
    for name in ("messages", "input"):
        given = fields.get(name)
        if isinstance(given, list):
            fields[name] = [_with_sendable_calls(each) for each in given]
    if fields.get("tools"):
        fields["tools"] = [_clean_tool(tool) for tool in fields["tools"]]
    return fields


def _clean_tool(tool: ToolDefinition) -> ToolDefinition:
    function: ToolDefinition | None = tool.get("function")
    if not isinstance(function, dict):
        return with_clean_parameters(tool)
    clean = with_clean_parameters(function)
    return tool if clean is function else {**tool, "function": clean}


def _with_sendable_calls(item: JsonObject) -> JsonObject:
    if GENERATED_TOKENS in item:
        return item
    if isinstance(calls := item.get("tool_calls"), list):
        return {**item, "tool_calls": [{**call, "function": _sendable(call.get("function"))} for call in calls]}
    return _sendable(item) if item.get("type") == "function_call" else item


def _sendable(call: JsonObject) -> JsonObject:
    return {**call, "arguments": sendable_arguments(call["arguments"])}


def with_clean_parameters(function: ToolDefinition) -> ToolDefinition:
    """Return a function whose JSON Schema has no null keywords. Parquet files have them, and endpoints reject them."""
    parameters = function.get("parameters")
    clean = _without_nulls(parameters)
    return function if clean is parameters else {**function, "parameters": clean}


def _without_nulls(schema: Any) -> Any:
    """Return the same object if there is nothing to remove, because most schemas have no null."""
    if isinstance(schema, list):
        entries = [_without_nulls(each) for each in schema]
        return schema if all(map(operator.is_, entries, schema)) else entries
    if not isinstance(schema, dict):
        return schema
    kept = {key: each if key in VALUES else _without_nulls(each) for key, each in schema.items()}
    if all(map(operator.is_, kept.values(), schema.values())) and None not in schema.values():
        return schema
    return {key: each for key, each in kept.items() if each is not None or key in VALUES - {"enum", "examples"}}

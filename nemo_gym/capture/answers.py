"""Read token counts, tool calls and reasoning from a model's answer in any dialect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

import orjson
from pydantic import BaseModel

from nemo_gym.jsonl import JsonObject


class TokenUsage(BaseModel):
    """Token counts of one or more answers. A count is None if no answer reports it."""

    tokens_in: int | None = None
    """The number of tokens in the prompts, including cached tokens."""
    tokens_out: int | None = None
    """The number of tokens in the answers, including reasoning."""
    tokens_reasoning: int | None = None
    """The part of `tokens_out` that was reasoning."""
    tokens_total: int | None = None
    cached_tokens: int | None = None
    """The part of `tokens_in` that the endpoint had cached."""

    @classmethod
    def of(cls, response: JsonObject) -> Self:
        """Return the token counts under `usage` in an answer."""
        usage = _object(response.get("usage"))
        read, created = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
        tokens_in = _count(usage, "input_tokens")
        if tokens_in is None:
            # This count includes cached tokens, even if the endpoint reports these under the names of Messages.
            tokens_in = _count(usage, "prompt_tokens")
        else:
            # Add the tokens read from and written to the cache, which Messages does not include in `input_tokens`.
            tokens_in += (read or 0) + (created or 0)
        tokens_out = _count(usage, "output_tokens", "completion_tokens")
        total = _count(usage, "total_tokens")
        if total is None and tokens_in is not None and tokens_out is not None:
            total = tokens_in + tokens_out
        details_in = _details(usage, "input_tokens_details", "prompt_tokens_details")
        details_out = _details(usage, "output_tokens_details", "completion_tokens_details")
        return cls(
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            tokens_reasoning=_count(details_out, "reasoning_tokens"),
            tokens_total=total,
            cached_tokens=_count(details_in, "cached_tokens") if read is None else read,
        )


def cache_creation_of(response: JsonObject) -> int | None:
    """Return the number of tokens that a call wrote to the endpoint's cache."""
    return _count(_object(response.get("usage")), "cache_creation_input_tokens")


def finish_reason_of(response: JsonObject) -> str | None:
    """Return why an answer ended (its `stop_reason`, `finish_reason` or `incomplete_details`), or None."""
    choices = _objects(response.get("choices"))
    found = (
        response.get("stop_reason"),
        choices[0].get("finish_reason") if choices else None,
        _object(response.get("incomplete_details")).get("reason"),
    )
    return next((reason for reason in found if isinstance(reason, str)), None)


def tool_calls_of(response: JsonObject) -> list[JsonObject]:
    """Return the `call_id`, `name` and `arguments` of each tool call. Arguments are parsed if they are valid JSON."""
    return [
        {"call_id": call_id, "name": name, "arguments": _arguments(given)}
        for call_id, name, given in _tool_calls(response)
    ]


def reasoning_of(response: JsonObject) -> str | None:
    """Return the reasoning texts of an answer, joined by newlines, or None if it does not contain any."""
    return "\n".join(text for text in _reasoning(response) if isinstance(text, str) and text) or None


def _tool_calls(response: JsonObject) -> Iterator[tuple[object, object, object]]:
    for item in _objects(response.get("output")):
        if item.get("type") == "function_call":
            yield item.get("call_id"), item.get("name"), item.get("arguments")
    for message in _messages(response):
        for call in _objects(message.get("tool_calls")):
            function = _object(call.get("function"))
            yield call.get("id"), function.get("name"), function.get("arguments")
    for block in _objects(response.get("content")):
        if block.get("type") == "tool_use":
            yield block.get("id"), block.get("name"), block.get("input")


def _reasoning(response: JsonObject) -> Iterator[object]:
    for item in _objects(response.get("output")):
        if item.get("type") == "reasoning":
            parts = _objects(item.get("summary")) or _objects(item.get("content"))
            yield from (part.get("text") for part in parts)
    for message in _messages(response):
        yield message.get("reasoning_content") or message.get("reasoning")
    for block in _objects(response.get("content")):
        if block.get("type") == "thinking":
            yield block.get("thinking")


def _messages(response: JsonObject) -> Iterable[JsonObject]:
    return (_object(choice.get("message")) for choice in _objects(response.get("choices")))


def _arguments(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return orjson.loads(given or "{}")
    except orjson.JSONDecodeError:
        return given


def _count(counts: JsonObject, *names: str) -> int | None:
    # Compare the type itself, because `isinstance` would accept a bool as an int.
    return next((counts[name] for name in names if type(counts.get(name)) is int and counts[name] >= 0), None)


def _details(usage: JsonObject, *names: str) -> JsonObject:
    return next((usage[name] for name in names if isinstance(usage.get(name), dict)), {})


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []

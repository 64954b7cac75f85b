"""Keys by which items of a program's history are recognized, although programs reformat what they send back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

import orjson

from nemo_gym.jsonl import loads_exact
from nemo_gym.schemas.shapes import Item

Key = tuple[str, ...]

MESSAGE, CALL, OUTPUT, REASONING = "message", "function_call", "function_call_output", "reasoning"
TOO_DEEP = "nested too deeply"
SHORTEST_QUOTE, SHORTEST_LINE = 8, 24
"""The number of characters of a whole answer, and of one of its lines, from which it can be recognized in a prompt."""


def key_of(item: Item) -> Key | None:
    """Return a key that is equal for copies of an item. Return None for items without content."""
    kind = str(item["type"])
    if kind == MESSAGE:
        text = spaced_once(text_of(item.get("content")))
        return (kind, str(item.get("role")), text) if text else None
    if kind == CALL:
        return kind, str(item["name"]), canonical(item["arguments"], has_empty=False)
    if kind == OUTPUT:
        return kind, str(item["call_id"]), spaced_once(text_of(item["output"]))
    if kind == REASONING:
        text = spaced_once(text_of([*(item.get("summary") or ()), *(item.get("content") or ())]))
        return (kind, text) if text else None
    return kind, written({name: value for name, value in item.items() if name not in ("id", "status")})


def text_of(content: object) -> str:
    """Return the text of a message's content or of a tool's output. Other parts become JSON text."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_text_of_part(part) for part in content) if isinstance(content, list) else written(content)


def texts_within(value: object) -> Iterable[str]:
    """Yield the texts of a tool's output, also if a program has wrapped it in JSON."""
    if isinstance(value, str):
        yield value
        if value.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                yield "\n".join(_texts(loads_exact(value)))
    else:
        yield text_of(value)


def canonical(arguments: object, *, has_empty: bool = True) -> str:
    """Return the arguments of a call in a form that does not depend on spaces or on the order of the keys.

    Without `has_empty`, leave out empty values such as false, because programs add defaults to calls of the model.
    """
    if not isinstance(arguments, str):
        return written(arguments)
    try:
        given = loads_exact(arguments)
        is_reduced = isinstance(given, dict) and not has_empty
        text = written({name: value for name, value in given.items() if value} if is_reduced else given)
    except ValueError:
        return arguments.strip()
    return arguments.strip() if text == TOO_DEEP else text


def quotes(prompt: str, answer: str) -> bool:
    """Return whether a prompt contains an answer of the model or one of its longer lines."""
    lines = [line for line in map(spaced_once, answer.splitlines()) if len(line) >= SHORTEST_LINE]
    whole = spaced_once(answer)
    return any(each in prompt for each in ([whole] if len(whole) >= SHORTEST_QUOTE else []) + lines)


def spaced_once(text: str) -> str:
    return " ".join(text.split())


def _text_of_part(part: object) -> str:
    if isinstance(part, dict):
        text = part.get("text", part.get("refusal"))
        return text if isinstance(text, str) else written(part)
    return str(part)


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, dict):
        if isinstance(text := value.get("text"), str):
            yield text
        value = [each for name, each in value.items() if name != "text"]
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)


def written(value: object) -> str:
    """Return a JSON value as text with sorted keys. Values that are nested too deeply become `TOO_DEEP`."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:
        # orjson rejects integers beyond 64 bits, lone surrogates, and deep values.
        with suppress(RecursionError):
            return json.dumps(value, sort_keys=True)
        return TOO_DEEP

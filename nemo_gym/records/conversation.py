"""Read a recorded conversation in any model API as items of the Responses API.

Other programs write records, too, so any field may have a value of any type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.shapes import AnswerJson, Block, Item, MessageJson

OMITTED, UNKNOWN = "omitted", "unknown"
"""The types of items that replace missing items, and of values that are not items."""


def prompt_of(record: JsonObject) -> Iterator[Item]:
    """Yield the items of a rollout's prompt."""
    params = Row(record).params or {}
    if instructions := params.get("instructions"):
        yield {"role": "system", "content": instructions}
    yield from _items(params.get("input") or params.get("messages") or record.get("messages"), role="user")


def output_of(record: JsonObject) -> Iterator[Item]:
    """Yield the items after the prompt: those of the response, or else those that a failed rollout has recorded."""
    said = list(answer_of(Row(record).response or {}))
    yield from said
    if not said and (so_far := Row(record).failure_conversation):
        if isinstance(count := so_far.get("omitted"), int) and count > 0:
            yield {"type": OMITTED, "value": f"{count:,} earlier items were not recorded"}
        yield from _items(so_far.get("items"), role="assistant")


def answer_of(response: AnswerJson) -> Iterator[Item]:
    """Yield the items of a model's answer or of an agent's response."""
    if given := response.get("output"):
        yield from _items(given, role="assistant")
    elif choices := objects_in(response.get("choices")):
        yield from _items([choice.get("message") for choice in choices], role="assistant")
    elif isinstance(given := response.get("messages"), list):
        yield from _items(given, role="assistant")
    else:
        for block in objects_in(response.get("content")):
            yield _item_of_block(block)


def is_of_model(item: Mapping[str, object]) -> bool:
    """Return whether an item of a response claims to be written by the model."""
    kind = item.get("type") or "message"
    return item.get("role", "assistant") == "assistant" if kind == "message" else not str(kind).endswith("_output")


def turns(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the model's turns. A turn ends at an item that the model received."""
    turn: list[Item] = []
    for item in items:
        if is_of_model(item):
            turn.append(item)
        elif turn:
            yield turn
            turn = []
    if turn:
        yield turn


def calls_of(items: Iterable[Item]) -> list[Item]:
    """Return the `call_id`, `name` and `arguments` of each function call. Valid JSON in arguments is parsed."""
    return [
        {"call_id": item.get("call_id"), "name": item.get("name"), "arguments": parsed(item.get("arguments") or "{}")}
        for item in items
        if item.get("type") == "function_call"
    ]


def reasoning_of(items: Iterable[Item]) -> str | None:
    """Return the reasoning texts, joined by newlines, or None if nothing was found."""
    thoughts = (item for item in items if item.get("type") == "reasoning")
    texts = (text for item in thoughts for text in texts_of(item.get("summary") or item.get("content")))
    return "\n".join(texts) or None


def finish_reason_of(response: AnswerJson) -> str | None:
    """Return why an answer ended (its `stop_reason`, `finish_reason` or `incomplete_details`), or None."""
    choices = objects_in(response.get("choices"))
    found = (
        response.get("stop_reason"),
        choices[0].get("finish_reason") if choices else None,
        object_at(response, "incomplete_details").get("reason"),
    )
    return next((reason for reason in found if isinstance(reason, str)), None)


def texts_of(content: object) -> list[str]:
    """Return the texts in the content of a message or reasoning item, without empty ones."""
    given = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, dict) else part for part in given)
    return [text for text in texts if isinstance(text, str) and text]


def parsed(text: object) -> object:
    """Parse JSON, such as a call's arguments. Return any other value unchanged."""
    try:
        return orjson.loads(text) if isinstance(text, str) else text
    except orjson.JSONDecodeError:
        return text


def object_at(record: Mapping[str, object], key: str) -> Any:
    """Return the object in a field, or an empty object if the field does not contain one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[Any]:
    """Return the items of a list that are objects, or an empty list if the value is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _items(given: list[MessageJson | str] | MessageJson | str | None, role: str) -> Iterator[Any]:
    """Yield items of the Responses API. Convert messages of Chat Completions to such items."""
    for each in given if isinstance(given, list) else [given] if given else []:
        if isinstance(each, str):
            yield {"role": role, "content": each}
        elif not isinstance(each, dict):
            yield {"type": UNKNOWN, "value": each}
        elif each.get("type") not in (None, "message"):
            yield each
        elif each.get("role") in ("tool", "function"):
            call_id = each.get("tool_call_id") or each.get("name")
            yield {"type": "function_call_output", "call_id": call_id, "output": each.get("content")}
        else:
            yield from _items_of_message(each)


def _items_of_message(message: MessageJson) -> Iterator[Item | MessageJson]:
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        yield {"type": "reasoning", "content": [{"type": "text", "text": reasoning}]}
    legacy = message.get("function_call")
    functions = [{"function": legacy, "id": legacy.get("name")}] if isinstance(legacy, dict) else []
    functions += objects_in(message.get("tool_calls"))
    if message.get("content") or message.get("refusal") or not functions:
        yield message
    for call in functions:
        named = object_at(call, "function") or call
        arguments = named.get("arguments")
        yield {"type": "function_call", "call_id": call.get("id"), "name": named.get("name"), "arguments": arguments}


def _item_of_block(block: Block) -> Item:
    """Convert a content block of Anthropic Messages to an item."""
    if block.get("type") == "tool_use":
        call_id, arguments = block.get("id"), block.get("input")
        return {"type": "function_call", "call_id": call_id, "name": block.get("name"), "arguments": arguments}
    if block.get("type") == "thinking":
        return {"type": "reasoning", "content": [{"type": "text", "text": block.get("thinking")}]}
    return {"role": "assistant", "content": [block]}

"""The conversation of a rollout as items that people read: messages, reasoning, and tool calls with their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.records.conversation import OMITTED, UNKNOWN, is_of_model, output_of, parsed, prompt_of, texts_of
from nemo_gym.schemas.shapes import Item, Part
from nemo_gym.viewer.media import Kind, kind_of, reference_of
from nemo_gym.viewer.shortening import LARGEST_VALUE, LONGEST_TEXT, cut, shortened

MOST_PARTS = 256
"""The maximum number of shown parts per message."""
LONGEST_NAME = 200
ROLES = ("system", "developer", "user", "assistant")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
FAILED_RESULTS = ("Error: ", "Invalid arguments for ", "Unknown tool '")
"""Prefixes of the results that nemo_gym returns to the model for failed tool calls."""


@dataclass(frozen=True)
class MediaPart:
    """An image or a sound of the conversation. `part` is the unchanged content part of the record."""

    kind: Kind
    part: Part


SourceOf = Callable[[int, MediaPart], str | None]
"""A function that returns the URL of the n-th image or sound of a conversation, or None if it cannot be shown."""


class ShownPart(TypedDict, total=False):
    """A part of a message or of a tool's result, as on the page (`Part` in api.ts)."""

    kind: str
    text: str
    omitted: int
    source: str | None
    note: str | None


class ShownItem(TypedDict, total=False):
    """An item of a conversation, as on the page (`Item` in api.ts)."""

    kind: str
    turn: int | None
    role: str
    parts: list[ShownPart]
    in_prompt: bool
    text: str
    is_summary: bool
    type: str
    value: object
    name: str
    call_id: str
    arguments: object
    result: list[ShownPart] | None
    failed: bool
    seconds: float | None


@dataclass
class Conversation:
    """The items of a rollout's conversation, and its images and sounds in order."""

    items: list[ShownItem] = field(default_factory=list)
    media: list[MediaPart] = field(default_factory=list)
    turns: int = 0
    """The number of the model's turns."""


def conversation_of(
    record: JsonObject, source_of: SourceOf, seconds_of_call: Mapping[str, float] | None = None
) -> Conversation:
    """Return the conversation of a scored, failed or planned rollout."""
    reader = _Reader(source_of, seconds_of_call or {})
    for item in prompt_of(record):
        reader.add(item, in_prompt=True)
    for item in output_of(record):
        reader.add(item, in_prompt=False)
    return reader.conversation


class _Reader:
    """A converter that adds Responses API items, one by one, to the conversation on the page."""

    def __init__(self, source_of: SourceOf, seconds_of_call: Mapping[str, float]) -> None:
        self.conversation = Conversation()
        self._source_of = source_of
        self._seconds_of_call = seconds_of_call
        self._open_calls: dict[str, deque[ShownItem]] = {}
        self._was_model = False

    def add(self, item: Item, *, in_prompt: bool) -> None:
        turn = None if in_prompt else self._turn_of(item)
        kind = item.get("type") or "message"
        if kind == "message":
            self._add_message(item, turn, in_prompt=in_prompt)
        elif kind == "reasoning":
            self._add_reasoning(item, turn)
        elif isinstance(kind, str) and kind.endswith("_output") and self._answer(item):
            return
        elif isinstance(kind, str) and kind.endswith("_call"):
            self._add_call(item, kind, turn)
        else:
            self._add_other(item, turn)

    def _turn_of(self, item: Item) -> int | None:
        """Return the turn of an item, or None if the model did not write it. Consecutive model items are one turn."""
        is_model = item.get("type") not in (OMITTED, UNKNOWN) and is_of_model(item)
        self.conversation.turns += is_model and not self._was_model
        self._was_model = is_model
        return self.conversation.turns if is_model else None

    def _add_message(self, item: Item, turn: int | None, *, in_prompt: bool) -> None:
        role = item.get("role", "assistant")
        content = item.get("content")
        parts = self._parts(content)
        if (claim := item.get("claimed_by_program")) is not None:
            parts.insert(0, _text_part(f"(claimed by the program, as {cut(str(claim), 50)})"))
        if isinstance(refusal := item.get("refusal"), str):
            parts.append({"kind": "refusal", "text": cut(refusal)})
        if role not in ROLES:
            self._add_other({"type": f"message of '{cut(str(role), 50)}'", "value": content}, turn)
            return
        self._add({"kind": "message", "role": role, "parts": parts, "in_prompt": in_prompt, "turn": turn})

    def _add_reasoning(self, item: Item, turn: int | None) -> None:
        content, summary = ("\n\n".join(texts_of(item.get(name))) for name in ("content", "summary"))
        if content or summary:
            text = cut(content or summary)
            self._add({"kind": "reasoning", "text": text, "is_summary": not content, "turn": turn})
        elif item.get("encrypted_content"):
            size = f"{len(str(item['encrypted_content'])):,} characters, encrypted by the endpoint"
            self._add({"kind": "other", "type": "reasoning", "value": size, "turn": turn})

    def _add_call(self, item: Item, kind: str, turn: int | None) -> None:
        call_id = _name_in(item, "call_id") or _name_in(item, "id")
        given = item.get("arguments", item.get("input", item.get("action")))
        result = item.get("error") or item.get("output", item.get("outputs", item.get("results")))
        call: ShownItem = {
            "kind": "tool",
            "name": _name_in(item, "name") or kind.removesuffix("_call"),
            "call_id": call_id,
            "arguments": shortened(_parsed(given)),
            "result": None if result is None else self._parts(result),
            "failed": is_failed(item),
            "turn": turn,
            "seconds": self._seconds_of_call.get(call_id),
        }
        self._add(call)
        if result is None:
            self._open_calls.setdefault(call_id, deque()).append(call)

    def _answer(self, item: Item) -> bool:
        """Add a tool's result to its call. Return False if no call waits for the result."""
        waiting = self._open_calls.get(_name_in(item, "call_id"))
        if not waiting:
            return False
        call, output = waiting.popleft(), item.get("output")
        call["result"] = self._parts(output)
        call["failed"] = call["failed"] or is_failed(item)
        return True

    def _add_other(self, item: Item, turn: int | None) -> None:
        value = item["value"] if item.keys() == {"type", "value"} else item
        self._add({"kind": "other", "type": cut(str(item.get("type")), 100), "value": shortened(value), "turn": turn})

    def _add(self, item: ShownItem) -> None:
        self.conversation.items.append(item)

    def _parts(self, content: Any) -> list[ShownPart]:
        given = content if isinstance(content, list) else [] if content is None else [content]
        # Read all parts, even those that are not shown, because images and sounds are addressed by their index.
        parts = [self._part(each) for each in given]
        left = LONGEST_TEXT * 4
        for at, part in enumerate(parts):
            left -= len(part.get("text") or "")
            if at == MOST_PARTS or left < 0:
                omitted = sum(len(each.get("text") or "") + each.get("omitted", 0) for each in parts[at:])
                return [*parts[:at], {"kind": "text", "text": f"({len(parts) - at:,} more parts)", "omitted": omitted}]
        return parts

    def _part(self, part: Part | str) -> ShownPart:
        if isinstance(part, str):
            return _text_part(part)
        if not isinstance(part, dict):
            return _text_part(_as_text(part))
        if part.get("type") == "refusal":
            return {"kind": "refusal", "text": cut(str(part.get("refusal") or ""))}
        if (kind := kind_of(part)) is not None:
            return self._media_part(part, kind)
        if (part.get("type") in TEXTS or part.keys() == {"text"}) and isinstance(part.get("text"), str):
            return _text_part(part["text"])
        return _text_part(_as_text(part))

    def _media_part(self, part: Part, kind: Kind) -> ShownPart:
        medium, number = MediaPart(kind, part), len(self.conversation.media)
        self.conversation.media.append(medium)
        reference = reference_of(part, kind)
        is_there = reference.data is not None or reference.file is not None
        return {"kind": kind, "source": self._source_of(number, medium) if is_there else None, "note": reference.note}


def _text_part(text: str) -> ShownPart:
    return {"kind": "text", "text": text[:LONGEST_TEXT], "omitted": max(0, len(text) - LONGEST_TEXT)}


def _as_text(value: object) -> str:
    short = shortened(value)
    return short if isinstance(short, str) else dump_json(short).decode()


def _name_in(item: Item, key: str) -> str:
    value = item.get(key)
    return "" if value is None else cut(str(value), LONGEST_NAME)


def _parsed(arguments: object) -> object:
    """Parse a call's arguments as JSON. Return them unchanged if they are too long or not valid JSON."""
    return arguments if isinstance(arguments, str) and len(arguments) > LARGEST_VALUE else parsed(arguments)


def is_failed(item: Item) -> bool:
    """Return whether a call or its result is a failure.

    Such a result is an error message of nemo_gym, or a JSON object with a field `error`.
    """
    if item.get("error") or item.get("status") == "failed":
        return True
    output = item.get("output")
    if not isinstance(output, str):
        return False
    if output.startswith(FAILED_RESULTS):
        return True
    value = _parsed(output) if output.startswith("{") else None
    return isinstance(value, dict) and bool(value.get("error"))

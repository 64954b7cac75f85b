"""Between the items of the Responses API and Aviary's messages and tools."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nemo_gym.jsonl import check_unicode

Item = dict[str, Any]

UNANSWERED = "The environment has not answered this call."
"""Told of a call that a step left without an output: endpoints refuse a conversation with an open call."""
NO_ARGUMENTS: Item = {"type": "object", "properties": {}, "required": []}
ROLES = {"user": "user", "system": "system", "assistant": "assistant"}
"""What is said in any other role, such as that of a tool without a call, is told as the user's word."""
JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class Call(NamedTuple):
    """The model's wish to call a tool; `arguments` is the JSON text that it wrote."""

    call_id: str
    name: str
    arguments: str


class Turn(NamedTuple):
    """One turn of the model."""

    text: str
    calls: Sequence[Call]

    @classmethod
    def of(cls, items: Iterable[Any]) -> Turn:
        """What of a response's output an environment is told: its messages and its function calls."""
        said = list(items)
        return cls(
            text="".join(item.text for item in said if item.type == "message" and item.role == "assistant"),
            calls=[Call(item.call_id, item.name, item.arguments) for item in said if item.type == "function_call"],
        )

    @property
    def items(self) -> list[Item]:
        """The turn in the words of the wire."""
        said = [{"type": "message", "role": "assistant", "content": self.text}] if self.text else []
        return said + [{"type": "function_call", **call._asdict()} for call in self.calls]


class Action(NamedTuple):
    """A turn as an environment takes it."""

    message: Any
    refused: dict[str, str]
    """By call id: why a call's arguments are none that its tool takes. The environment sees it as an invalid call."""


def action_of(turn: Turn, environment: Any) -> Action:
    """The message that stands for a turn; calls with wrong arguments are marked as Aviary marks them."""
    from aviary.core import INVALID_TOOL_NAME, Message, ToolCall, ToolCallFunction, ToolRequestMessage

    text = turn.text or None
    if not turn.calls and not _takes_requests_only(environment):
        return Action(Message(role="assistant", content=text), {})
    schemas = {tool.info.name: tool.info.parameters for tool in getattr(environment, "tools", None) or []}
    calls, refused = [], {}
    for call in turn.calls:
        arguments = _arguments(call, schemas.get(call.name))
        if isinstance(arguments, str):
            refused[call.call_id] = arguments
            function = ToolCallFunction(name=INVALID_TOOL_NAME, arguments={})
        else:
            function = ToolCallFunction(name=call.name, arguments=arguments)
        calls.append(ToolCall(id=call.call_id, function=function))
    return Action(ToolRequestMessage(content=text, tool_calls=calls), refused)


def observed(messages: Iterable[Any]) -> list[Item]:
    """An environment's first messages as input items."""
    items = _items_of_all(messages)
    asked = [item["call_id"] for item in items if item["type"] == "function_call"]
    return [item if item.get("call_id") in [None, *asked] else _for_user(item) for item in items]


def answered(messages: Iterable[Any], action: Action) -> list[Item]:
    """What an environment says to an action as input items: one answer to each call, then the rest."""
    unanswered = [call.id for call in getattr(action.message, "tool_calls", ())]
    answers, others = [], []
    for item in _items_of_all(messages):
        if item["type"] != "function_call_output":
            others.append(item)
        elif item["call_id"] not in unanswered:
            others.append(_for_user(item))
        else:
            unanswered.remove(item["call_id"])
            answers.append({**item, "output": action.refused.get(item["call_id"], item["output"])})
    answers += [_output(call_id, action.refused.get(call_id, UNANSWERED)) for call_id in unanswered]
    return [*answers, *others]


def text_of(items: Iterable[Item]) -> str:
    """All that items tell, as one text."""
    told = (item.get("output", item.get("content")) for item in items)
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in told if each is not None)


def definition_of(tool: Any) -> Item:
    """A tool as a request lists it."""
    info = tool.info
    return {
        "type": "function",
        "name": info.name,
        "description": info.description,
        "parameters": info.parameters.model_dump(mode="json") if info.parameters is not None else NO_ARGUMENTS,
        "strict": False,
    }


def _takes_requests_only(environment: Any) -> bool:
    """Whether a turn without calls must still come as a request: so the annotation of older environments' `step`."""
    from aviary.core import ToolRequestMessage

    parameters = list(inspect.signature(environment.step).parameters.values())
    return bool(parameters) and parameters[0].annotation in (ToolRequestMessage, ToolRequestMessage.__name__)


def _arguments(call: Call, parameters: Any) -> dict[str, Any] | str:
    """The arguments of a call, or what is wrong with them."""
    try:
        given = json.loads(call.arguments or "{}")
        check_unicode(given)
    except (ValueError, RecursionError) as error:
        return f"Invalid arguments: not valid JSON ({error!s:.100})."
    if not isinstance(given, dict):
        return f"Invalid arguments: expected a JSON object, found {type(given).__name__}."
    if parameters is None:
        return given
    problems = [f"'{name}' is missing" for name in parameters.required if name not in given]
    takes_others = (parameters.model_extra or {}).get("additionalProperties", False)
    for name, value in given.items():
        schema = parameters.properties.get(name)
        if schema is None and not takes_others:
            problems.append(f"'{name}' is not an argument")
        elif schema is not None and not _is_of_type(value, schema.get("type")):
            problems.append(f"'{name}' must be of type {schema['type']}")
    return f"Invalid arguments for {call.name}: {'; '.join(problems):.500}." if problems else given


def _is_of_type(value: Any, name: Any) -> bool:
    # Only what a schema says plainly; the rest, such as a union, is the tool's own to check.
    kinds = JSON_TYPES.get(name) if isinstance(name, str) else None
    return kinds is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)))


def _items_of_all(messages: Iterable[Any]) -> list[Item]:
    return [item for message in messages for item in _items_of(message)]


def _items_of(message: Any) -> list[Item]:
    content = message.deserialized_content
    parts = [_part(part) for part in content] if isinstance(content, list) else content or ""
    if message.role == "tool" and getattr(message, "tool_call_id", None) is not None:
        return [_output(message.tool_call_id, parts)]
    items: list[Item] = []
    if parts:
        items.append({"type": "message", "role": ROLES.get(message.role, "user"), "content": parts})
    for call in getattr(message, "tool_calls", None) or ():
        arguments = json.dumps(call.function.arguments)
        items.append({"type": "function_call", **Call(call.id, call.function.name, arguments)._asdict()})
    return items


def _part(part: Item) -> Item:
    if part.get("type") == "image_url":
        image = part["image_url"]
        return {
            "type": "input_image",
            "detail": "auto",
            "image_url": image["url"] if isinstance(image, dict) else image,
        }
    return {"type": "input_text", "text": str(part.get("text", ""))}


def _output(call_id: str, output: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _for_user(item: Item) -> Item:
    return {"type": "message", "role": "user", "content": item["output"]}

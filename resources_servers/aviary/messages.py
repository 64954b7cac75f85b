"""Convert between Responses API items and Aviary's messages and tools."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nemo_gym.jsonl import check_unicode

Item = dict[str, Any]

UNANSWERED = "The environment has not answered this call."
"""The output that is added to unanswered calls, because endpoints reject conversations with such calls."""
NO_ARGUMENTS: Item = {"type": "object", "properties": {}, "required": []}
ROLES = {"user": "user", "system": "system", "assistant": "assistant"}
"""The roles that are kept. Any other role, such as `tool` in a message without a call id, becomes `user`."""
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
    """A tool call by the model. `arguments` is its unparsed JSON text."""

    call_id: str
    name: str
    arguments: str


class Turn(NamedTuple):
    text: str
    calls: Sequence[Call]

    @classmethod
    def of(cls, items: Iterable[Any]) -> Turn:
        """Convert a response's messages and function calls to a turn. Other items are dropped."""
        output = list(items)
        return cls(
            text="".join(item.text for item in output if item.type == "message" and item.role == "assistant"),
            calls=[Call(item.call_id, item.name, item.arguments) for item in output if item.type == "function_call"],
        )

    @property
    def items(self) -> list[Item]:
        """The turn as Responses API items."""
        message = [{"type": "message", "role": "assistant", "content": self.text}] if self.text else []
        return message + [{"type": "function_call", **call._asdict()} for call in self.calls]


class Action(NamedTuple):
    """A turn as an Aviary message."""

    message: Any
    rejected: dict[str, str]
    """The problems with the arguments of rejected calls, by call id. In `message`, they are marked as invalid."""


def action_of(turn: Turn, environment: Any) -> Action:
    """Convert a turn to an Aviary message, in which calls with invalid arguments have the name `INVALID_TOOL_NAME`."""
    from aviary.core import INVALID_TOOL_NAME, Message, ToolCall, ToolCallFunction, ToolRequestMessage

    text = turn.text or None
    if not turn.calls and not _takes_requests_only(environment):
        return Action(Message(role="assistant", content=text), {})
    schemas = {tool.info.name: tool.info.parameters for tool in getattr(environment, "tools", None) or []}
    calls, rejected = [], {}
    for call in turn.calls:
        arguments = _arguments(call, schemas.get(call.name))
        if isinstance(arguments, str):
            rejected[call.call_id] = arguments
            function = ToolCallFunction(name=INVALID_TOOL_NAME, arguments={})
        else:
            function = ToolCallFunction(name=call.name, arguments=arguments)
        calls.append(ToolCall(id=call.call_id, function=function))
    return Action(ToolRequestMessage(content=text, tool_calls=calls), rejected)


def observed(messages: Iterable[Any]) -> list[Item]:
    """Convert an environment's first messages to input items."""
    items = _items_of_all(messages)
    call_ids = [item["call_id"] for item in items if item["type"] == "function_call"]
    return [item if item.get("call_id") in [None, *call_ids] else _for_user(item) for item in items]


def answered(messages: Iterable[Any], action: Action) -> list[Item]:
    """Convert an environment's reply to input items: one output for each call of the turn, then all other items."""
    unanswered = [call.id for call in getattr(action.message, "tool_calls", ())]
    answers, others = [], []
    for item in _items_of_all(messages):
        if item["type"] != "function_call_output":
            others.append(item)
        elif item["call_id"] not in unanswered:
            others.append(_for_user(item))
        else:
            unanswered.remove(item["call_id"])
            answers.append({**item, "output": action.rejected.get(item["call_id"], item["output"])})
    answers += [_output(call_id, action.rejected.get(call_id, UNANSWERED)) for call_id in unanswered]
    return [*answers, *others]


def text_of(items: Iterable[Item]) -> str:
    """Join the contents of items into one text."""
    contents = (item.get("output", item.get("content")) for item in items)
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in contents if each is not None)


def definition_of(tool: Any) -> Item:
    """Convert a tool to the format of a model request."""
    info = tool.info
    return {
        "type": "function",
        "name": info.name,
        "description": info.description,
        "parameters": info.parameters.model_dump(mode="json") if info.parameters is not None else NO_ARGUMENTS,
        "strict": False,
    }


def _takes_requests_only(environment: Any) -> bool:
    """Return whether `step` is annotated to take only a `ToolRequestMessage`, as in older environments."""
    from aviary.core import ToolRequestMessage

    parameters = list(inspect.signature(environment.step).parameters.values())
    return bool(parameters) and parameters[0].annotation in (ToolRequestMessage, ToolRequestMessage.__name__)


def _arguments(call: Call, parameters: Any) -> dict[str, Any] | str:
    """Return a call's arguments, or an error message if they are invalid."""
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
    # Only plain types are checked. The tool itself checks the rest, such as unions.
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

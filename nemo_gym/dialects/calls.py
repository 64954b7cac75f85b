"""Tool calls of models: arguments that endpoints can parse, and ids that are unique in a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from uuid import uuid4

from pydantic import BaseModel

from nemo_gym.jsonl import JsonObject, dump_json, loads_exact
from nemo_gym.schemas.chat import ChatCompletion
from nemo_gym.schemas.items import FunctionToolCall
from nemo_gym.schemas.responses import Response

UNREADABLE_ARGUMENTS = "unreadable_arguments"
"""The only key of a tool's input if the model's arguments are not a JSON object."""
GENERATED_TOKENS = "generation_token_ids"

AnswerT = TypeVar("AnswerT")


def input_of_call(arguments: str) -> JsonObject:
    """Return a tool call's arguments as an object. If they are not a JSON object, keep their text under one key."""
    try:
        value = loads_exact(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {UNREADABLE_ARGUMENTS: arguments}


def sendable_arguments(arguments: str) -> str:
    """Return arguments for a later request. Endpoints reject a conversation with arguments that they cannot parse."""
    known = input_of_call(arguments)
    return dump_json(known).decode() if UNREADABLE_ARGUMENTS in known else arguments or "{}"


def unique_ids(ids: Iterable[object], known: Iterable[str] = ()) -> list[str]:
    """Return the ids of a turn's calls. An id that is missing or taken is replaced, so that results match calls."""
    taken = set(known)
    unique = []
    for given in ids:
        call_id = given if isinstance(given, str) and given and given not in taken else f"call_{uuid4().hex}"
        taken.add(call_id)
        unique.append(call_id)
    return unique


def with_unique_calls(answer: AnswerT, asked: BaseModel) -> AnswerT:
    """Return a response whose call ids are unique in the conversation of `asked`. Other answers stay unchanged."""
    calls = answer.tool_calls if isinstance(answer, Response) else []
    if calls:
        items = getattr(asked, "input", ())
        earlier = () if isinstance(items, str) else items
        known = {item.call_id for item in earlier if isinstance(item, FunctionToolCall)}
        for call, call_id in zip(calls, unique_ids((call.call_id for call in calls), known), strict=True):
            call.call_id = call_id
    return answer


def with_unique_chat_calls(answer: AnswerT, asked: BaseModel) -> AnswerT:
    """Return a completion whose call ids are unique in the conversation of `asked`."""
    choices = answer.choices if isinstance(answer, ChatCompletion) else []
    for choice in choices:
        calls = choice.message.tool_calls or []
        if calls:
            known = {
                call["id"]
                for message in getattr(asked, "messages", [])
                for call in message.get("tool_calls") or []
                if isinstance(call, dict) and isinstance(call.get("id"), str)
            }
            for call, call_id in zip(calls, unique_ids((call.id for call in calls), known), strict=True):
                call.id = call_id
    return answer

"""Unique ids of tool calls in the answers of model servers, so that each result matches one call."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from nemo_gym.dialects.calls import unique_ids
from nemo_gym.schemas.chat import ChatCompletion
from nemo_gym.schemas.items import FunctionToolCall
from nemo_gym.schemas.responses import Response

AnswerT = TypeVar("AnswerT")


def with_unique_calls(answer: AnswerT, asked: BaseModel) -> AnswerT:
    """Return a response whose call ids are unique in the conversation of `asked`. Other answers stay unchanged."""
    calls = answer.tool_calls if isinstance(answer, Response) else []
    if calls:
        items = getattr(asked, "input", ())
        earlier = () if isinstance(items, str) else items
        known = {item.call_id for item in earlier if isinstance(item, FunctionToolCall)}
        for call, call_id in zip(calls, unique_ids((call.call_id for call in calls), known), strict=True):
            if call_id != call.call_id:
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
                if call_id != call.id:
                    call.id = call_id
    return answer

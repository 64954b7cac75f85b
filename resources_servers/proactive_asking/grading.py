"""Replay a conversation to determine its bookings and whether the user was asked for the missing detail first."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym import NeMoGymResponse, ToolError
from nemo_gym.grading import is_claimed, strip_reasoning
from resources_servers.proactive_asking.bookings import KINDS, Book


class Course(NamedTuple):
    """The result of replaying a conversation."""

    book: Book
    """The bookings that remain after all calls."""
    was_asked: bool
    """Whether, before the first booking, the user answered a message that mentions the missing detail."""
    needless_questions: int
    """The number of messages answered by the user before the first booking that do not mention the missing detail."""


class Cancellation(BaseModel):
    """The arguments of the tool `cancel_booking`."""

    model_config = ConfigDict(extra="forbid")

    booking_id: int


def course_of(response: NeMoGymResponse, asked_with: list[str]) -> Course:
    """Replay the calls of a conversation, in order, on an empty book.

    `asked_with` contains words that identify a question for the missing detail. It is empty if no detail is missing.
    """
    answered = {item.call_id for item in response.output if item.type == "function_call_output"}
    detail = _pattern(asked_with)
    book, has_booked, was_asked, needless, said = Book(), False, False, 0, ""
    for item in response.output:
        # A call without an output was never executed, because the policy's turn was cut off.
        if item.type == "function_call" and item.call_id in answered:
            has_booked |= _make(book, item.name, item.arguments)
        elif item.type == "message" and item.role == "assistant":
            said += "\n" + strip_reasoning(_text_of(item.content))
        elif item.type == "message" and item.role == "user" and not is_claimed(item):
            is_about_detail = detail is not None and detail.search(said) is not None
            was_asked |= is_about_detail and not has_booked
            needless += not is_about_detail and not has_booked
            said = ""
    return Course(book, was_asked, needless)


def _make(book: Book, name: str, arguments: str) -> bool:
    """Execute a call as its tool does, and return whether it made a booking. Rejected calls change nothing."""
    try:
        if name in KINDS:
            book.add(KINDS[name].model_validate_json(arguments or "{}"))
            return True
        if name == "cancel_booking":
            book.cancel(Cancellation.model_validate_json(arguments or "{}").booking_id)
    except (ValidationError, ToolError):
        return False
    return False


def _pattern(words: list[str]) -> re.Pattern[str] | None:
    if not words:
        return None
    either = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if part.type in ("output_text", "input_text"))

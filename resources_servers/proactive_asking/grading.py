"""Read a conversation: was the user asked for what was missing before anything was booked, and what is booked now."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym import NeMoGymResponse, ToolError
from nemo_gym.grading import strip_reasoning
from resources_servers.proactive_asking.bookings import KINDS, Book


class Course(NamedTuple):
    """What happened in a conversation."""

    book: Book
    """As the calls have left it."""
    was_asked: bool
    """Before the first booking the user answered a message that mentions the missing detail."""
    needless_questions: int
    """How often it answered another one, until the first booking."""


class Cancellation(BaseModel):
    """The arguments of the tool `cancel_booking`."""

    model_config = ConfigDict(extra="forbid")

    booking_id: int


def course_of(response: NeMoGymResponse, asked_with: list[str]) -> Course:
    """Go through a conversation in its order, and make its calls again on an empty book.

    `asked_with` are the words of which a question for the missing detail has one; none where nothing is missing.
    """
    answered = {item.call_id for item in response.output if item.type == "function_call_output"}
    detail = _pattern(asked_with)
    book, has_booked, was_asked, needless, said = Book(), False, False, 0, ""
    for item in response.output:
        # A call without an answer was not made: the policy's turn was cut off.
        if item.type == "function_call" and item.call_id in answered:
            has_booked |= _make(book, item.name, item.arguments)
        elif item.type == "message" and item.role == "assistant":
            said += "\n" + strip_reasoning(_text_of(item.content))
        elif item.type == "message" and item.role == "user":
            is_about_detail = detail is not None and detail.search(said) is not None
            was_asked |= is_about_detail and not has_booked
            needless += not is_about_detail and not has_booked
            said = ""
    return Course(book, was_asked, needless)


def _make(book: Book, name: str, arguments: str) -> bool:
    """Make a call as its tool does; whether it has booked something. A call that the tool refuses changes nothing."""
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

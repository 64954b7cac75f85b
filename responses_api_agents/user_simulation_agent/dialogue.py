"""What user and assistant have said to one another: a conversation without tools and thoughts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from nemo_gym.grading import strip_reasoning

Speaker = Literal["user", "assistant"]


class Line(NamedTuple):
    """What one of the two said before it was the other's turn."""

    speaker: Speaker
    text: str


def dialogue_of(given: str | list[dict[str, Any]], said: Iterable[dict[str, Any]] = ()) -> list[Line]:
    """The lines of a row's input and of what was said after it.

    Instructions, calls, their answers and thinking are no part of it: the user does not see them. What one of the two
    says in several messages is one line.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    lines: list[Line] = []
    for item in [*given, *said]:
        speaker = item.get("role")
        if item.get("type", "message") != "message" or speaker not in ("user", "assistant"):
            continue
        text = _text_of(item.get("content"))
        if speaker == "assistant":
            text = strip_reasoning(text)
        if lines and lines[-1].speaker == speaker:
            text = "\n".join(part for part in (lines.pop().text, text) if part)
        lines.append(Line(speaker, text))
    return lines


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or [] if isinstance(part.get("text"), str))

"""The dialogue between user and assistant: a conversation without tools and reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from nemo_gym.grading import strip_reasoning
from nemo_gym.jsonl import JsonObject

Speaker = Literal["user", "assistant"]


class Line(NamedTuple):
    """The text that one speaker says until the other speaks."""

    speaker: Speaker
    text: str


def dialogue_of(given: str | list[JsonObject], said: Iterable[JsonObject] = ()) -> list[Line]:
    """Return a conversation as dialogue lines: the row's input `given`, then the items `said`.

    Instructions, calls, tool outputs and reasoning are omitted, because the user does not see them. Successive
    messages of one speaker are joined into one line.
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


def _text_of(content: str | list[JsonObject] | None) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or [] if isinstance(part.get("text"), str))

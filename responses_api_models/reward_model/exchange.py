"""The texts that are scored: the messages of a prompt, and the answer to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel

from nemo_gym import DataError
from nemo_gym.jsonl import JsonObject

Role = Literal["user", "assistant", "system", "developer"]


class Message(BaseModel):
    role: Role
    content: str


class Exchange(NamedTuple):
    """A prompt and the answer to score. `answer` is empty if the conversation has none."""

    prompt: tuple[Message, ...]
    answer: str

    @classmethod
    def of_prompt(cls, prompt: str | Sequence[Message], answer: str) -> Exchange:
        messages = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
        return cls(tuple(messages), answer)

    @classmethod
    def of_conversation(cls, messages: Iterable[JsonObject]) -> Exchange:
        """Split a conversation into the prompt and the final assistant message. Skip items that are not messages.

        Raise `DataError` for an image or another part that is not text.
        """
        prompt = [Message(role=each["role"], content=_text_of(each.get("content"))) for each in messages if _is(each)]
        answer = prompt.pop().content if prompt and prompt[-1].role == "assistant" else ""
        return cls(tuple(prompt), answer)

    @property
    def request(self) -> str:
        """The last user message, or an empty string."""
        return next((each.content for each in reversed(self.prompt) if each.role == "user"), "")


def _is(item: JsonObject) -> bool:
    """Return whether an item is a message with a role that reward models support."""
    return item.get("role") in ("user", "assistant", "system", "developer")


def _text_of(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text", part.get("refusal")) for part in parts if isinstance(part, dict)]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        kinds = sorted({str(part.get("type")) for part in parts if isinstance(part, dict) and "text" not in part})
        raise DataError(f"reward models score text, but a message contains {', '.join(kinds) or 'another part'}")
    return "".join(texts)

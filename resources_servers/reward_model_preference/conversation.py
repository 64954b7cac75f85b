"""The conversation before the final answer, as the reward model receives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nemo_gym import BaseVerifyRequest
from nemo_gym.grading import strip_reasoning
from nemo_gym.jsonl import JsonObject

ROLES = ("user", "assistant", "system", "developer")


class NotText(ValueError):
    """An error for a message part that reward models cannot read. The error's text names the part's type."""


def prompt_of(body: BaseVerifyRequest) -> list[JsonObject]:
    """Return all messages except the assistant's last one, without reasoning, tool calls and tool outputs."""
    params = body.responses_create_params
    messages = [{"role": "system", "content": params.instructions}] if params.instructions else []
    messages += _messages_of(params.input_items)
    said = list(_messages_of(body.response.output))
    answers = [place for place, message in enumerate(said) if message["role"] == "assistant"]
    if answers:
        del said[answers[-1]]
    return [*messages, *said]


def _messages_of(items: Iterable[object]) -> Iterator[JsonObject]:
    for item in items:
        role = getattr(item, "role", None)
        if role in ROLES:
            text = _text_of(getattr(item, "content", ""))
            yield {"role": role, "content": strip_reasoning(text) if role == "assistant" else text}


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else ():
        text = getattr(part, "text", getattr(part, "refusal", None))
        if not isinstance(text, str):
            raise NotText(f"a reward model reads text only, but a message contains {getattr(part, 'type', 'a part')}")
        texts.append(text)
    return "".join(texts)

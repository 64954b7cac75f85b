"""Requests to a generative reward model, whose chat template has special roles for the answers to compare."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Tag, field_validator

from nemo_gym.schemas.chat import ChatCompletionCreateParams
from nemo_gym.schemas.items import EasyInputMessage, InputItem
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.shapes import ANY_KEYS, MessageJson

JudgedRole = Literal["response_1", "response_2", "principle"]
JUDGED_ROLES: tuple[str, ...] = get_args(JudgedRole)
"""The roles of the two answers to compare, and of the principle by which to compare them."""


class JudgedMessage(EasyInputMessage):
    """An input message for a judge: one of the answers to compare, or the principle by which to compare them."""

    role: JudgedRole  # type: ignore[assignment]


def _kind_of(item: object) -> str:
    role = item.get("role") if isinstance(item, dict) else getattr(item, "role", None)
    return "judged" if role in JUDGED_ROLES else "usual"


JudgedItem = Annotated[
    Annotated[JudgedMessage, Tag("judged")] | Annotated[InputItem, Tag("usual")], Discriminator(_kind_of)
]


class JudgedCreateParams(ResponseCreateParams):
    """A Responses request whose input may contain judged messages."""

    input: str | list[JudgedItem]


class JudgedChatParams(ChatCompletionCreateParams):
    """A Chat Completions request whose messages may have the roles in `JUDGED_ROLES`."""

    messages: list[Annotated[MessageJson, ANY_KEYS]]

    @field_validator("messages")
    @classmethod
    def _others_are_usual(cls, messages: list[MessageJson]) -> list[MessageJson]:
        usual = [message for message in messages if message.get("role") not in JUDGED_ROLES]
        ChatCompletionCreateParams(messages=usual)
        return messages

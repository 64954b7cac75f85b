"""Responses to Chat Completions and back: the converter that model servers use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel

from nemo_gym.dialects.chat_answers import (
    REASONING_FIELDS,
    NewId,
    items_of_message,
    response_of_completion,
    separate_reasoning,
)
from nemo_gym.dialects.chat_history import items_of_messages, response_params
from nemo_gym.dialects.chat_parts import text_of_parts
from nemo_gym.dialects.chat_requests import chat_params
from nemo_gym.dialects.thinking import split_thinking, wrapped_in_think_tags
from nemo_gym.schemas.chat import ChatCompletion, ChatCompletionCreateParams, Choice
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionToolCall,
    InputItem,
    OutputItem,
    OutputMessage,
    ReasoningItem,
)
from nemo_gym.schemas.responses import Response, ResponseCreateParams

PUBLISHED_NAME = "nemo_gym.responses_converter"
"""Where published folders import all of this from, and where their tests replace `uuid4`."""


def new_id(prefix: str) -> str:
    """An id that nothing else has: `<prefix>_<32 hexadecimal digits>`."""
    draw: Callable[[], UUID] = getattr(sys.modules.get(PUBLISHED_NAME), "uuid4", uuid4)
    return f"{prefix}_{draw().hex}"


@dataclass(frozen=True)
class ResponsesConverter:
    """Converts requests and answers; holds only what kind of endpoint it converts for.

    Reasoning that the endpoint tells apart (`reasoning_content`, `reasoning`) or writes as `<think>…</think>` becomes
    a reasoning item. In a request it stands as `<think>…</think>` in the assistant's content, unless
    `uses_reasoning_parser` is off: then it is left out.
    With `return_token_id_information` the token fields of a message travel along, both ways.
    """

    return_token_id_information: bool
    uses_reasoning_parser: bool = True
    new_id: NewId = new_id
    """Makes the ids of what is converted: `rs_…`, `msg_…`, `resp_…`, and `call_…` where the endpoint gave none."""

    def responses_to_chat_completion_create_params(
        self, responses_create_params: ResponseCreateParams
    ) -> ChatCompletionCreateParams:
        """A request for Chat Completions; `DataError` tells what cannot be said there."""
        return chat_params(
            responses_create_params,
            keeps_reasoning=self.uses_reasoning_parser,
            keeps_tokens=self.return_token_id_information,
        )

    def chat_completion_to_responses_create_params(
        self, chat_completion_create_params: ChatCompletionCreateParams
    ) -> ResponseCreateParams:
        """A request for Responses; `DataError` tells what cannot be said there."""
        return response_params(
            chat_completion_create_params, new_id=self.new_id, keeps_tokens=self.return_token_id_information
        )

    def chat_completion_to_response(
        self, chat_completion: ChatCompletion | Mapping[str, Any], responses_create_params: ResponseCreateParams
    ) -> Response:
        """The response to a request, from the completion that answered it."""
        return response_of_completion(
            _plain(chat_completion),
            responses_create_params,
            new_id=self.new_id,
            keeps_tokens=self.return_token_id_information,
        )

    def postprocess_chat_response(self, choice: Choice | Mapping[str, Any]) -> list[OutputItem]:
        """The items of one choice."""
        return self.postprocess_assistant_message_dict(_plain(choice)["message"])

    def postprocess_assistant_message_dict(self, message_dict: Mapping[str, Any]) -> list[OutputItem]:
        """The items of an assistant's message."""
        return items_of_message(message_dict, new_id=self.new_id, keeps_tokens=self.return_token_id_information)

    def chat_completions_messages_to_responses_items(self, messages: Sequence[Mapping[str, Any]]) -> list[InputItem]:
        """A conversation as items."""
        return items_of_messages(messages, new_id=self.new_id, keeps_tokens=self.return_token_id_information)

    def with_reasoning_in_content(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """An assistant's message with its reasoning in its content, where any client of Chat Completions sees it."""
        rest = {name: value for name, value in message.items() if name not in REASONING_FIELDS}
        reasoning = separate_reasoning(message)
        if reasoning is not None:
            rest["content"] = wrapped_in_think_tags([reasoning]) + text_of_parts(message.get("content"))
        return rest

    def _extract_reasoning_from_content(self, content: str) -> tuple[list[str], str]:
        thought = split_thinking(content)
        return thought.reasoning, thought.rest

    @staticmethod
    def _wrap_reasoning_in_think_tags(texts: list[str]) -> str:
        return wrapped_in_think_tags(texts)


def _plain(value: BaseModel | Mapping[str, Any]) -> Mapping[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else value


def split_responses_input_output_items(items: Sequence[InputItem]) -> tuple[list[InputItem], list[InputItem]]:
    """What was given before the assistant first acted, and everything from there on."""
    for index, item in enumerate(items):
        acted = isinstance(item, (OutputMessage, FunctionToolCall, ReasoningItem))
        if acted or (isinstance(item, EasyInputMessage) and item.role == "assistant"):
            return list(items[:index]), list(items[index:])
    return list(items), []

"""The converter between Responses and Chat Completions that model servers use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from nemo_gym.calls.hooks import hooks
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
from nemo_gym.dialects.thinking import wrapped_in_think_tags
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.chat import ChatCompletion, ChatCompletionCreateParams
from nemo_gym.schemas.items import InputItem, OutputItem
from nemo_gym.schemas.responses import Response, ResponseCreateParams


def new_id(prefix: str) -> str:
    """Return a unique id: `<prefix>_<32 hexadecimal digits>`."""
    return f"{prefix}_{hooks().new_uuid().hex}"


class ResponsesConverter(BaseModel):
    """Converter of requests and answers, configured for one kind of endpoint.

    In a request, reasoning is written as `<think>…</think>` into the assistant's content. With
    `return_token_id_information`, the token fields of messages are converted too.
    """

    return_token_id_information: bool
    uses_reasoning_parser: bool = True
    """Whether an answer's reasoning, in a separate field (`reasoning_content`, `reasoning`) or in `<think>…</think>`,
    becomes a reasoning item. Otherwise it becomes a part of the message's text, as `<think>…</think>`."""
    sends_media: bool = False
    """Whether to send images and other media of tool outputs in a user message. Otherwise they are an error."""
    new_id: NewId = new_id
    """The function that makes ids, with the prefixes `rs`, `msg` and `resp`, and `call` if the endpoint gave no id."""
    chat_request: type[ChatCompletionCreateParams] = ChatCompletionCreateParams
    """The class of converted requests. A subclass may allow more roles."""

    def responses_to_chat_completion_create_params(
        self, responses_create_params: ResponseCreateParams
    ) -> ChatCompletionCreateParams:
        """Convert a Responses request to Chat Completions. Raise `DataError` for content without an equivalent."""
        return chat_params(
            responses_create_params,
            keeps_tokens=self.return_token_id_information,
            sends_media=self.sends_media,
            kind=self.chat_request,
        )

    def chat_completion_to_responses_create_params(
        self, chat_completion_create_params: ChatCompletionCreateParams
    ) -> ResponseCreateParams:
        """Convert a Chat Completions request to Responses. Raise `DataError` for content without an equivalent."""
        return response_params(
            chat_completion_create_params, new_id=self.new_id, keeps_tokens=self.return_token_id_information
        )

    def chat_completion_to_response(
        self, responses_create_params: ResponseCreateParams, chat_completion: ChatCompletion | JsonObject
    ) -> Response:
        """Convert a completion to a response. `responses_create_params` is the request that the completion answers."""
        return response_of_completion(
            _as_json(chat_completion),
            responses_create_params,
            new_id=self.new_id,
            keeps_tokens=self.return_token_id_information,
            splits_reasoning=self.uses_reasoning_parser,
        )

    def postprocess_assistant_message_dict(self, message_dict: JsonObject) -> list[OutputItem]:
        """Convert an assistant's message to output items."""
        return items_of_message(
            _as_json(message_dict),
            new_id=self.new_id,
            keeps_tokens=self.return_token_id_information,
            splits_reasoning=self.uses_reasoning_parser,
        )

    def chat_completions_messages_to_responses_items(self, messages: Sequence[JsonObject]) -> list[InputItem]:
        """Convert a chat conversation to input items."""
        return items_of_messages(
            map(_as_json, messages), new_id=self.new_id, keeps_tokens=self.return_token_id_information
        )

    def with_reasoning_in_content(self, message: JsonObject) -> JsonObject:
        """Return an assistant's message with its reasoning moved into the content, which any client can read."""
        rest = {name: value for name, value in message.items() if name not in REASONING_FIELDS}
        reasoning = separate_reasoning(message)
        if reasoning is not None:
            rest["content"] = wrapped_in_think_tags([reasoning]) + text_of_parts(message.get("content"))
        return rest


def _as_json(value: BaseModel | JsonObject) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value

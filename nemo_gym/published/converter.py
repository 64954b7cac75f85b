"""The converter between Responses and Chat Completions with all methods that published folders call."""

from __future__ import annotations

from pydantic import BaseModel

from nemo_gym.dialects import chat
from nemo_gym.dialects.thinking import Thought, split_thinking, wrapped_in_think_tags
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.chat import Choice
from nemo_gym.schemas.items import OutputItem


class ResponsesConverter(chat.ResponsesConverter):
    """Converter of requests, answers and parts of them, configured for one kind of endpoint."""

    def postprocess_chat_response(self, choice: Choice | JsonObject) -> list[OutputItem]:
        """Convert one choice to output items."""
        fields = choice.model_dump() if isinstance(choice, BaseModel) else choice
        return self.postprocess_assistant_message_dict(fields["message"])

    def _extract_reasoning_from_content(self, content: str) -> Thought:
        return split_thinking(content)

    @staticmethod
    def _wrap_reasoning_in_think_tags(texts: list[str]) -> str:
        return wrapped_in_think_tags(texts)

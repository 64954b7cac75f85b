"""Public import path of the converter of Chat Completions, which takes its ids from this module's `uuid4`."""

from uuid import uuid4

from nemo_gym.dialects.chat_requests import ConversationState as VLLMConverterResponsesToChatCompletionsState
from nemo_gym.published.converter import ResponsesConverter
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.split_items import split_responses_input_output_items
from nemo_gym.records.usage import usage_detail as _usage_detail

VLLMConverter = ResponsesConverter

__all__ = [
    "ResponsesConverter", "VLLMConverter", "VLLMConverterResponsesToChatCompletionsState", "_usage_detail",
    "split_responses_input_output_items", "uuid4",
]  # fmt: skip

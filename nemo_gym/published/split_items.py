"""Split a conversation into the request and the assistant's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nemo_gym.dialects.chat_requests import is_from_assistant
from nemo_gym.schemas.items import HostedItem, InputItem

CALLS_OF_HOSTED_TOOLS = frozenset(
    {
        "custom_tool_call", "web_search_call", "file_search_call", "computer_call", "code_interpreter_call",
        "image_generation_call", "local_shell_call", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    }
)  # fmt: skip


class SplitItems(NamedTuple):
    before: list[InputItem]
    output: list[InputItem]
    """The items from the assistant's first item on."""


def split_responses_input_output_items(items: Sequence[InputItem]) -> SplitItems:
    """Split items into those before the assistant's first item and the rest.

    Tool outputs and replies to approval requests are not items of the assistant. Calls of hosted tools are.
    """
    split_at = next((index for index, item in enumerate(items) if _begins_output(item)), len(items))
    return SplitItems(list(items[:split_at]), list(items[split_at:]))


def _begins_output(item: InputItem) -> bool:
    return is_from_assistant(item) or (isinstance(item, HostedItem) and item.type in CALLS_OF_HOSTED_TOOLS)

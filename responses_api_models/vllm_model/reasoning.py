"""Send the earlier reasoning of a conversation in the form that the endpoint expects."""

from typing import Literal

from nemo_gym import DataError
from nemo_gym.dialects.chat_answers import REASONING_FIELDS, separate_reasoning
from nemo_gym.dialects.thinking import THINK_BLOCK, split_thinking
from nemo_gym.jsonl import JsonObject

SentReasoning = Literal["none", "think", "reasoning", "reasoning_content"]


def with_sent_reasoning(message: JsonObject, form: SentReasoning) -> JsonObject:
    """Return a request's message with its reasoning in the form that the endpoint expects.

    The form `think` leaves the content as it is, because it has `<think>…</think>` already.
    """
    if message.get("role") != "assistant" or form == "think":
        return message
    rest = {name: value for name, value in message.items() if name not in REASONING_FIELDS}
    separate, content = separate_reasoning(message), message.get("content")
    if separate is None and isinstance(content, str):
        reasoning, text = split_thinking(content)
        if not reasoning:
            return message
        separate = "\n".join(reasoning)
        rest["content"] = text or (None if message.get("tool_calls") else "")
    return rest if form == "none" or separate is None else {**rest, form: separate}


def check_single_reasoning(messages: list[JsonObject]) -> None:
    """Raise `DataError` if an assistant message has several pieces of reasoning."""
    for place, message in enumerate(messages):
        content = message.get("content")
        if message.get("role") != "assistant" or not isinstance(content, str):
            continue
        pieces = len(THINK_BLOCK.findall(content))
        if pieces > 1:
            raise DataError(
                f"messages[{place}] has {pieces} pieces of reasoning, but sequential_reasoning_allowed is off. Set it "
                "to true, or let the agent merge them."
            )

"""Convert a response to Chat Completions."""

from uuid import uuid4

from nemo_gym import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.dialects.thinking import wrapped_in_think_tags
from nemo_gym.jsonl import JsonObject

FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def completion_of_response(response: NeMoGymResponse) -> NeMoGymChatCompletion:
    """Return a completion with the reasoning as `<think>…</think>` in its content."""
    thoughts = wrapped_in_think_tags(item.text for item in response.output if item.type == "reasoning")
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in response.tool_calls
    ]
    text = thoughts + response.output_text
    message: JsonObject = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    incomplete = response.incomplete_details
    finish = FINISH_REASONS[incomplete.reason or ""] if incomplete else "tool_calls" if calls else "stop"
    return NeMoGymChatCompletion.model_validate(
        {
            "id": f"chatcmpl-{uuid4().hex}",
            "object": "chat.completion",
            "created": int(response.created_at),
            "model": response.model,
            "choices": [{"index": 0, "finish_reason": finish, "message": message, "logprobs": None}],
            "usage": _usage(response),
        }
    )


def _usage(response: NeMoGymResponse) -> JsonObject | None:
    usage = response.usage
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
    }

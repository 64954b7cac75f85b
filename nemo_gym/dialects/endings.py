"""Errors of endpoints that end a conversation as a scored answer: a full context window, or a content filter."""

from __future__ import annotations

import re
import time
from typing import Literal
from uuid import uuid4

from nemo_gym.errors import EndpointError
from nemo_gym.schemas.shapes import AnswerJson

Ending = Literal["length", "content_filter"]
"""The finish reason of an answer that the endpoint refused to begin."""
INCOMPLETE_REASONS: dict[Ending, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
REJECTED = (400, 413, 422, None)
"""The statuses of rejected requests. An error in a reply with status 200 may have none."""
CODES = re.compile(
    r'"(?:code|type|status)"\s*:\s*"(?:(?P<length>context_length_exceeded|context_window_exceeded'
    r"|context_window_exceeded_error|exceed_context_size_error|model_context_window_exceeded|string_above_max_length"
    r"|input_too_long|prompt_too_long|model_max_prompt_tokens_exceeded)|(?P<content_filter>content_filter"
    r'|ResponsibleAIPolicyViolation|content_policy_violation|data_inspection_failed))"',
    re.IGNORECASE,
)
OVERFLOW = re.compile(
    r"context[ _](length|window|size)|context limit|max_model_len|maximum model length|available context"
    r"|(prompt|input|request|conversation)( is| are)?( tokens?| length)? (is )?too (long|large|many tokens)"
    r"|too many (input )?tokens|exceed\w* (the )?(model'?s? )?(max\w*|limit)[^.]{0,40}(tokens?|length)"
    r"|token count[^.]{0,40}exceed|reduce the length|range of input length|maximum prompt length"
    r"|prompt (length|tokens?)? ?exceeds?|exceeded model token limit|must have less than \d+ tokens"
    r"|inputs?.{0,20}tokens.{0,40}must be <=|too large for model|longer than the (model|maximum)",
    re.IGNORECASE | re.DOTALL,
)
LENGTH_LIMIT = re.compile(r"max_(completion_|new_)?tokens", re.IGNORECASE)
REJECTED_FIELD = re.compile(
    r"unsupported|unrecognized|unknown|not (supported|permitted)|range of (?!input length)|supports at most",
    re.IGNORECASE,
)
"""A regex for errors about a field or its allowed values. They do not depend on the length of the conversation."""
RATE_LIMIT = re.compile(r"tokens per minute|rate.?limit|\bTPM\b", re.IGNORECASE)


def ending_of(error: EndpointError) -> Ending | None:
    """Return how the conversation ends if the endpoint's error is an ending, or None if it is a failure.

    The model's own turns made the conversation too long or filtered, so another attempt would not help.
    """
    code = CODES.search(error.body)
    if code is not None:
        return "length" if code["length"] else "content_filter"
    if error.status not in REJECTED or RATE_LIMIT.search(error.body):
        return None
    # Some engines name only the limit of the answer, which is then the rest of the context.
    is_of_limit = LENGTH_LIMIT.search(error.body) and not REJECTED_FIELD.search(error.body)
    return "length" if is_of_limit or OVERFLOW.search(error.body) else None


def ending_or_raise(error: EndpointError) -> Ending:
    """Return how the conversation ends. Raise the error if it is a failure."""
    ending = ending_of(error)
    if ending is None:
        raise error
    return ending


def empty_completion(model: str, ending: Ending) -> AnswerJson:
    """Return the empty completion for a conversation that has ended."""
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": ending,
                "message": {"role": "assistant", "content": ""},
                "logprobs": None,
            }
        ],
    }


def empty_response(model: str, ending: Ending) -> AnswerJson:
    """Return the empty, incomplete response for a conversation that has ended."""
    text = {"type": "output_text", "text": "", "annotations": []}
    message = {"type": "message", "id": f"msg_{uuid4().hex}", "role": "assistant", "content": [text]}
    return {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "output": [{**message, "status": "incomplete"}],
        "status": "incomplete",
        "incomplete_details": {"reason": INCOMPLETE_REASONS[ending]},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }

"""Convert the finish reasons of engines and providers to those of Chat Completions."""

from __future__ import annotations

import logging
from functools import lru_cache

from nemo_gym.errors import DataError
from nemo_gym.http.model_replies import reason_name
from nemo_gym.schemas.shapes import ChoiceJson

STANDARD = {
    "stop": (
        "stop", "complete", "completed", "end_turn", "endoftext", "eos", "eos_token", "finished", "normal",
        "stop_sequence",
    ),
    "length": (
        "length", "error_limit", "max_length", "max_output_tokens", "max_tokens", "model_context_window_exceeded",
        "model_length", "pause_turn", "repetition", "token_limit", "too_many_tool_calls",
    ),
    "tool_calls": ("tool_calls", "function_call", "tool_call", "tool_use"),
    # The endpoint withheld the answer. Gemini withholds malformed calls, which are the model's own mistakes.
    "content_filter": (
        "content_filter", "blocklist", "content_filtered", "error_toxic", "function_call_filter",
        "guardrail_intervened", "image_safety", "language", "malformed_function_call", "prohibited_content",
        "recitation", "refusal", "safety", "sensitive", "spii", "unexpected_tool_call",
    ),
}  # fmt: skip
"""The names that endpoints use for each finish reason of Chat Completions."""
ANSWER = (
    "audio", "content", "function_call", "images", "reasoning", "reasoning_content", "refusal", "tool_calls",
)  # fmt: skip
"""The fields of a message of which at least one is filled, unless the model ended its answer at once."""
_STANDARD_OF = {name: reason for reason, names in STANDARD.items() for name in names}
_KNOWN_WARNINGS = 256

logger = logging.getLogger(__name__)


def standard_reason(choice: ChoiceJson, url: str) -> str:
    """Return the finish reason of a choice as Chat Completions names it. An unknown or missing one means `stop`.

    Raise `DataError` if the answer is empty and its reason is unknown or missing.
    """
    given = choice.get("finish_reason")
    if isinstance(given, str) and given in STANDARD:
        return str(given)
    name = reason_name(given)
    if name in _STANDARD_OF:
        return _STANDARD_OF[name]
    message = choice.get("message")
    if not (isinstance(message, dict) and any(message.get(each) for each in ANSWER)):
        reason = f"with the finish_reason '{given}'" if name else "without a finish_reason"
        raise DataError(
            f"{url} returned an empty answer {reason}, so the model may have failed. The endpoint's log may have the "
            "cause."
        )
    _warn_of(url, f"the finish_reason '{name}' is unknown" if name else "an answer has no finish_reason")
    return "stop"


@lru_cache(maxsize=_KNOWN_WARNINGS)
def _warn_of(url: str, problem: str) -> None:
    # The cache suppresses repeated warnings.
    logger.warning("%s: %s. Such answers count as complete: check that they are not cut off.", url, problem)

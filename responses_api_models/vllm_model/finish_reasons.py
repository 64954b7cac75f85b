"""Convert the finish reasons of engines and providers to those of Chat Completions."""

import logging
from functools import lru_cache

from nemo_gym import DataError
from nemo_gym.jsonl import JsonObject

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
BROKEN_OFF = frozenset((
    "abort", "aborted", "canceled", "cancelled", "error", "insufficient_system_resource", "network_error",
    "time_limit", "timeout", "user_cancel",
))  # fmt: skip
"""The finish reasons of answers that the endpoint stopped, for example to load new weights."""
ANSWER = (
    "audio", "content", "function_call", "images", "reasoning", "reasoning_content", "refusal", "tool_calls",
)  # fmt: skip
"""The fields of a message of which at least one is filled, unless the model ended its answer at once."""
_STANDARD_OF = {name: reason for reason, names in STANDARD.items() for name in names}
_TO_UNDERSCORES = str.maketrans("- ", "__")
_KNOWN_WARNINGS = 256

logger = logging.getLogger(__name__)


def standard_reason(choice: JsonObject, url: str) -> str:
    """Return the finish reason of a choice as Chat Completions names it. An unknown or missing one means `stop`.

    Raise `DataError` if the endpoint stopped the answer, or if it is empty and its reason is unknown or missing.
    """
    given = choice.get("finish_reason")
    # Gemini adds a detail, as in `content_filter: RECITATION`.
    name = str(given or "").partition(":")[0].strip().lower().translate(_TO_UNDERSCORES)
    if name in BROKEN_OFF:
        raise DataError(
            f"{url} stopped before the end of an answer, with the finish_reason '{given}'. The engine's log may have "
            "the cause."
        )
    if name in _STANDARD_OF:
        return _STANDARD_OF[name]
    message = choice.get("message")
    if not (isinstance(message, dict) and any(message.get(each) for each in ANSWER)):
        reason = f"with the finish_reason '{given}'" if name else "without a finish_reason"
        raise DataError(
            f"{url} returned an empty answer {reason}, so the model may have failed. The endpoint's log may have the "
            "cause."
        )
    if name:
        _warn_of_unknown(url, name)
    return "stop"


@lru_cache(maxsize=_KNOWN_WARNINGS)
def _warn_of_unknown(url: str, name: str) -> None:
    # The cache suppresses repeated warnings.
    logger.warning(
        "%s: the finish_reason '%s' is unknown. Its answers count as complete: check that they are not cut off.",
        url,
        name,
    )

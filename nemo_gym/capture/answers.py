"""Read token counts from a model's answer in any dialect."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at


class TokenUsage(BaseModel):
    """Token counts of one or more answers. A count is None if no answer reports it."""

    tokens_in: int | None = None
    """The number of tokens in the prompts, including cached tokens."""
    tokens_out: int | None = None
    """The number of tokens in the answers, including reasoning."""
    tokens_reasoning: int | None = None
    """The part of `tokens_out` that was reasoning."""
    tokens_total: int | None = None
    cached_tokens: int | None = None
    """The part of `tokens_in` that the endpoint had cached."""

    @classmethod
    def of(cls, response: JsonObject) -> Self:
        """Return the token counts under `usage` in an answer."""
        usage = object_at(response, "usage")
        read, created = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
        tokens_in = _count(usage, "input_tokens")
        if tokens_in is None:
            # This count includes cached tokens, even if the endpoint reports these under the names of Messages.
            tokens_in = _count(usage, "prompt_tokens")
        else:
            # Add the tokens read from and written to the cache, which Messages does not include in `input_tokens`.
            tokens_in += (read or 0) + (created or 0)
        tokens_out = _count(usage, "output_tokens", "completion_tokens")
        total = _count(usage, "total_tokens")
        if total is None and tokens_in is not None and tokens_out is not None:
            total = tokens_in + tokens_out
        details_in = _details(usage, "input_tokens_details", "prompt_tokens_details")
        details_out = _details(usage, "output_tokens_details", "completion_tokens_details")
        return cls(
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            tokens_reasoning=_count(details_out, "reasoning_tokens"),
            tokens_total=total,
            cached_tokens=_count(details_in, "cached_tokens") if read is None else read,
        )


def cache_creation_of(response: JsonObject) -> int | None:
    """Return the number of tokens that a call wrote to the endpoint's cache."""
    return _count(object_at(response, "usage"), "cache_creation_input_tokens")


def _count(counts: JsonObject, *names: str) -> int | None:
    # Compare the type itself, because `isinstance` would accept a bool as an int.
    return next((counts[name] for name in names if type(counts.get(name)) is int and counts[name] >= 0), None)


def _details(usage: JsonObject, *names: str) -> JsonObject:
    return next((usage[name] for name in names if isinstance(usage.get(name), dict)), {})

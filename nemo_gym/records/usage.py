"""The token counts of answers, in the format of any model API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

from nemo_gym.schemas.responses import ResponseUsage

PROMPT, ANSWER = ("input_tokens", "prompt_tokens", "tokens_in"), ("output_tokens", "completion_tokens", "tokens_out")
REASONING = ("reasoning_tokens", "thinking_tokens", "reasoning_output_tokens")
CACHED = ("cached_tokens", "cached_input_tokens", "cache_read_input_tokens")
"""The names of each count in the APIs and in captured calls. Some endpoints report details at the top level."""


class Usage(NamedTuple):
    """The token counts of an answer. A count is None if the answer does not report it."""

    tokens_in: int | None = None
    """The number of tokens in the prompt, including cached tokens."""
    tokens_out: int | None = None
    """The number of tokens in the answer, including reasoning."""
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    cached_tokens: int | None = None
    """The part of `tokens_in` that the endpoint had cached."""
    cache_creation_tokens: int | None = None
    """The part of `tokens_in` that the endpoint wrote to its cache."""


def usage_of(counts: object) -> Usage:
    """Return the token counts of an answer, given its field `usage`."""
    if not isinstance(counts, dict):
        return Usage()
    of_prompt = counts.get("input_tokens_details") or counts.get("prompt_tokens_details")
    of_answer = counts.get("output_tokens_details") or counts.get("completion_tokens_details")
    tokens_in, tokens_out = _first(counts, PROMPT), _first(counts, ANSWER)
    total, created = count_of(counts.get("total_tokens")), count_of(counts.get("cache_creation_input_tokens"))
    if tokens_in is not None and "input_tokens" in counts and "input_tokens_details" not in counts:
        # Messages does not include the tokens read from and written to the cache in `input_tokens`.
        tokens_in += (count_of(counts.get("cache_read_input_tokens")) or 0) + (created or 0)
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    reasoning, cached = _detail(of_answer, counts, REASONING), _detail(of_prompt, counts, CACHED)
    return Usage(tokens_in, tokens_out, reasoning, total, cached, created)


def response_usage(counts: object) -> ResponseUsage | None:
    """Convert the token counts of any API to those of a response. Return None if the endpoint did not count."""
    usage = usage_of(counts)
    if usage.tokens_in is None or usage.tokens_out is None or not usage.tokens_in + usage.tokens_out:
        return None
    written = usage.cache_creation_tokens or usage_detail(counts, "prompt_tokens_details", "cache_write_tokens")
    return ResponseUsage(
        input_tokens=usage.tokens_in,
        # Always set the count of written tokens, because the newest clients require it.
        input_tokens_details={"cached_tokens": usage.cached_tokens, "cache_write_tokens": written or 0},
        output_tokens=usage.tokens_out,
        output_tokens_details={"reasoning_tokens": usage.tokens_reasoning},
        total_tokens=usage.tokens_total or usage.tokens_in + usage.tokens_out,
    )


def standard_usage(counts: object, names: Sequence[str]) -> dict[str, object] | None:
    """Return token counts with valid values, or None if the endpoint did not count.

    `names` are the API's names of the tokens of the prompt, of the answer, and of both.
    """
    if not isinstance(counts, dict):
        return None
    read, written, total = (count_of(counts.get(name)) for name in names)
    if read is None or written is None or not read + written:
        return None
    kept = {name: each for name, each in counts.items() if not name.endswith("_details") or isinstance(each, dict)}
    return kept | dict(zip(names, (read, written, total or read + written), strict=True))


def usage_detail(usage: object, group: str, name: str, *aliases: str) -> int | None:
    """Return the count `name` in a group of `usage`, or else its first alias at the top level, or else None."""
    counts = (_field(_field(usage, group), name), *(_field(usage, alias) for alias in aliases))
    return next((count for count in counts if is_count(count)), None)


def count_of(value: object) -> int | None:
    """Return a number of tokens, or None for any other value. Some endpoints write whole numbers as floats."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def are_known(read: object, written: object) -> bool:
    """Return whether an endpoint counted the tokens. A missing count and only zeros mean that it did not."""
    return is_count(read) and is_count(written) and read + written > 0


def _first(counts: Mapping[str, object], names: Sequence[str]) -> int | None:
    for name in names:
        if (count := count_of(counts.get(name))) is not None:
            return count
    return None


def _detail(group: object, counts: Mapping[str, object], names: Sequence[str]) -> int | None:
    if type(group) is dict:
        for name in names:
            if is_count(count := group.get(name)):
                return count
    return _first(counts, names)


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)

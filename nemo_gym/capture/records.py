"""The record of one captured model call, and the sums over a rollout's calls."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.capture.store import BEGINNING, CaptureStore, Extent
from nemo_gym.config.settings import ModelServerRef
from nemo_gym.jsonl import JsonObject

Dialect = Literal["responses", "chat", "messages"]
PAYLOADS = frozenset({"request", "response", "request_raw", "response_raw"})
"""The fields with the contents of a call, which attachments omit by default."""


class ErrorCategory(StrEnum):
    """The reason why a model call failed or its record is not complete."""

    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    AUTH = "auth"
    NOT_FOUND = "not_found"
    CLIENT_ERROR = "client_error"
    UPSTREAM_ERROR = "upstream_error"
    CONNECTION = "connection"
    EXCEPTION = "exception"
    INCOMPLETE = "incomplete"
    """The answer was cancelled before its end."""
    STREAM_TRUNCATED = "stream_truncated"
    """The stream ended without its final event."""
    CAPTURE_PARSE_ERROR = "capture_parse_error"
    """The request or answer is not JSON; it is kept as text."""


class ModelCallRecord(BaseModel):
    """One call to a model server: request, answer and timing."""

    model_config = ConfigDict(extra="ignore", use_enum_values=True)

    model_call_id: str = Field(default_factory=lambda: f"call_{uuid4().hex}")
    dialect: Dialect
    """The API of the call."""
    model_ref: ModelServerRef | None = None
    """The model server."""
    started_at: float
    """Seconds since the epoch."""
    completed_at: float | None = None
    """Seconds since the epoch."""
    latency_ms: float | None = None
    """Time to the end of the answer."""
    latency_ttft_ms: float | None = None
    """Time to the first byte of a stream; None if the answer was not streamed."""
    status_code: int | None = None
    error_category: ErrorCategory | None = None
    """The reason why the call failed or its record is not complete."""
    request: object = None
    response: object = None
    request_raw: str | None = None
    """The request as text, if it is not JSON."""
    response_raw: str | None = None
    """The answer as text, if it is not JSON or is an incomplete stream."""

    @property
    def usage(self) -> TokenUsage:
        """The token counts in the answer, in any dialect."""
        return TokenUsage.of(self.response)

    @property
    def response_id(self) -> str | None:
        """The id in the answer."""
        given = self.response.get("id") if isinstance(self.response, dict) else None
        return given if isinstance(given, str) else None

    def line(self, *, include_payloads: bool = True) -> JsonObject:
        """Return the record as it is written; the raw text fields are left out if unset."""
        left_out = {name for name in ("request_raw", "response_raw") if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=left_out if include_payloads else set(PAYLOADS))


class TokenUsage(BaseModel):
    """Token counts of one call; zero if the answer does not report them."""

    tokens_in: int = 0
    """Tokens of the requests."""
    tokens_out: int = 0
    """Tokens of the answers."""
    tokens_reasoning: int = 0
    """The part of `tokens_out` that was reasoning."""
    tokens_total: int = 0
    cached_tokens: int = 0
    """The part of `tokens_in` that the endpoint had cached."""

    @classmethod
    def of(cls, response: object) -> Self:
        """Return the token counts under `usage` in an answer of any dialect."""
        usage = response.get("usage") if isinstance(response, dict) else None
        if not isinstance(usage, dict):
            return cls()
        cached = _number(usage, "cache_read_input_tokens")
        tokens_in = _number(usage, "input_tokens", "prompt_tokens")
        if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
            # In Messages, `input_tokens` does not include tokens that are read from or written to the cache.
            tokens_in += cached + _number(usage, "cache_creation_input_tokens")
        tokens_out = _number(usage, "output_tokens", "completion_tokens")
        details_in = _details(usage, "input_tokens_details", "prompt_tokens_details")
        details_out = _details(usage, "output_tokens_details", "completion_tokens_details")
        return cls(
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            tokens_reasoning=_number(details_out, "reasoning_tokens"),
            tokens_total=_number(usage, "total_tokens") or tokens_in + tokens_out,
            cached_tokens=cached or _number(details_in, "cached_tokens"),
        )


def _number(counts: JsonObject, *names: str) -> int:
    return next((counts[name] for name in names if isinstance(counts.get(name), int)), 0)


def _details(usage: JsonObject, *names: str) -> JsonObject:
    return next((usage[name] for name in names if isinstance(usage.get(name), dict)), {})


class ModelCallMetrics(TokenUsage):
    """Sums over the model calls of a rollout."""

    latency_total_ms: float = 0.0
    """The sum of the calls' latencies."""
    num_calls: int = 0
    """The number of calls, including failed ones."""

    @classmethod
    def over(cls, calls: Sequence[ModelCallRecord]) -> Self:
        """Return the sums over these calls, including failed ones."""
        usages = [call.usage for call in calls]
        tokens = {name: sum(getattr(usage, name) for usage in usages) for name in TokenUsage.model_fields}
        return cls(**tokens, latency_total_ms=sum(call.latency_ms or 0.0 for call in calls), num_calls=len(calls))


def read_model_call_records(store: CaptureStore, rollout_id: str, after: Extent = BEGINNING) -> list[ModelCallRecord]:
    """Return the captured calls of a rollout since `after` by start time, without torn lines."""
    records = [ModelCallRecord.model_validate(line) for line in store.read_available(rollout_id, after)]
    return sorted(records, key=lambda record: record.started_at)


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> JsonObject:
    """Return the number of captured calls of a rollout, and their total tokens and latency in milliseconds."""
    return ModelCallMetrics.over(read_model_call_records(store, rollout_id)).model_dump()

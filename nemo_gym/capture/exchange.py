"""One call to a model server as it is written to the capture file: request, answer and timing."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.settings import ModelServerRef
from nemo_gym.jsonl import JsonObject

Dialect = Literal["responses", "chat", "messages"]


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
    """The call ended before the answer was complete, for example because the caller hung up."""
    STREAM_TRUNCATED = "stream_truncated"
    """The stream ended without its final event."""
    CAPTURE_PARSE_ERROR = "capture_parse_error"
    """The request or answer is not JSON; it is kept as text."""


class Exchange(BaseModel):
    """One recorded model call, as a line of a capture file."""

    model_config = ConfigDict(use_enum_values=True)

    model_call_id: str = Field(default_factory=lambda: f"call_{uuid4().hex}")
    dialect: Dialect
    model_ref: ModelServerRef | None = None
    started_at: float
    """Seconds since the epoch."""
    completed_at: float | None = None
    """Seconds since the epoch."""
    latency_ms: float | None = None
    """Time from the start of the call to the end of the answer."""
    latency_ttft_ms: float | None = None
    """Time from the start of the call to the first byte of a streamed answer; None if the answer was not streamed."""
    status_code: int | None = None
    error_category: ErrorCategory | None = None
    """The reason why the call failed or its record is not complete."""
    request: object = None
    response: object = None
    request_raw: str | None = None
    """The request as text, if it is not JSON."""
    response_raw: str | None = None
    """The answer as text, if it is not JSON or is an incomplete stream."""

    def line(self) -> JsonObject:
        """Return the call as a JSON object for the capture file. Raw texts that are None are left out."""
        unset = {name for name in ("request_raw", "response_raw") if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=unset)

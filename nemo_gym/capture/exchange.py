"""One call to a model server as it is written to the capture file: request, answer and timing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel

from nemo_gym.config.settings import ModelServerRef
from nemo_gym.errors import RolloutError, RolloutTimedOut, ServerCallError
from nemo_gym.http.reply import ReplyTimedOut
from nemo_gym.schemas.responses import RESPONSES_PATH

Dialect = Literal["responses", "chat", "messages"]
DIALECTS: dict[str, Dialect] = {
    RESPONSES_PATH: "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
}
"""The API dialect of each route of a model server."""


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


class CallFields(BaseModel):
    """The fields of a model call's record that are read as they were written."""

    model_call_id: str | None = None
    model_ref: ModelServerRef | None = None
    dialect: str | None = None
    """The API of the call: `responses`, `chat` or `messages`."""
    status_code: int | None = None
    started_at: float | None = None
    """Seconds since the epoch."""
    completed_at: float | None = None
    """Seconds since the epoch."""
    error_category: str | None = None
    """The reason why the call failed or its record is not complete."""
    latency_ttft_ms: float | None = None
    """Time to the first byte of a streamed answer; None if the answer was not streamed."""
    request_raw: str | None = None
    """The request as text, if it is not a JSON object."""
    response_raw: str | None = None
    """The answer as text, if it is not a JSON object or is an incomplete stream."""


class Exchange(CallFields):
    """One recorded model call, as a line of a capture file."""

    model_call_id: str
    dialect: Dialect
    started_at: float
    latency_ms: float | None = None
    """Time from the start of the call to the end of the answer."""
    request: object = None
    response: object = None

    def line(self) -> Mapping[str, object]:
        """Return the call as a JSON object for the capture file. Raw texts that are None are left out."""
        unset = {name for name in ("request_raw", "response_raw") if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=unset)


BY_STATUS = {
    401: ErrorCategory.AUTH,
    403: ErrorCategory.AUTH,
    404: ErrorCategory.NOT_FOUND,
    408: ErrorCategory.TIMEOUT,
    429: ErrorCategory.RATE_LIMIT,
    504: ErrorCategory.TIMEOUT,
}


def category_of_status(status: int) -> ErrorCategory | None:
    """Return the category of a status, or None if it is not an error."""
    if status < 400:
        return None
    return BY_STATUS.get(status, ErrorCategory.CLIENT_ERROR if status < 500 else ErrorCategory.UPSTREAM_ERROR)


def category_of_error(error: BaseException) -> ErrorCategory:
    """Return the category of the first categorised error in the chain of causes, else `connection` or `exception`."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    for cause in chain:
        if isinstance(cause, TimeoutError | ReplyTimedOut | RolloutTimedOut):
            return ErrorCategory.TIMEOUT
        status = _status_of(cause)
        if status is not None and (category := category_of_status(status)) is not None:
            return category
    is_of_connection = any(isinstance(cause, ServerCallError | ConnectionError) for cause in chain)
    return ErrorCategory.CONNECTION if is_of_connection else ErrorCategory.EXCEPTION


def _status_of(error: BaseException) -> int | None:
    if isinstance(error, RolloutError):
        # Skip this status, because it is meant for this server's caller. The cause has the model endpoint's status.
        return None
    # Look for both names, because authors may call models with any HTTP library.
    found = (getattr(error, name, None) for name in ("status", "status_code"))
    return next((status for status in found if isinstance(status, int)), None)

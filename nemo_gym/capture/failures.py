"""Classify failed model calls by the status of the answer or by the error that was raised."""

from __future__ import annotations

from nemo_gym.capture.exchange import ErrorCategory
from nemo_gym.errors import RolloutError, RolloutTimedOut, ServerCallError
from nemo_gym.http.reply import ReplyTimedOut

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

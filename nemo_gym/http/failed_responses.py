"""Read replies to `/responses`, which may report a failure of the endpoint although their HTTP status is 200."""

from __future__ import annotations

import re

from nemo_gym.errors import EndpointError
from nemo_gym.http.external import as_written, parsed
from nemo_gym.jsonl import JsonObject

STATUSES = {"server_error": 500, "rate_limit_exceeded": 429}
"""The HTTP statuses of temporary failures, by error code. Other failures are not retried, so they have no status."""
UNFINISHED = ("cancelled", "in_progress", "queued")
"""The statuses of responses in the background. They contain only a part of the answer, or nothing."""
_WITHOUT_ANSWER = re.compile(rb'"status"\s*:\s*"(?:failed|%s)"' % "|".join(UNFINISHED).encode())


def parsed_response(text: bytes) -> JsonObject | None:
    """Parse a response as `parsed` does. Raise `EndpointError` if its status is `failed` or `UNFINISHED`."""
    response = parsed(text)
    status = None if response is None else response.get("status")
    if status in UNFINISHED:
        raise EndpointError(
            f"sent a response with the status '{status}', so the answer is missing. Leave 'background' out of the "
            "request and of extra_body."
        )
    if response is None or status != "failed":
        return response
    error = response.get("error")
    known = error if isinstance(error, dict) else {}
    code, message = known.get("code"), str(known.get("message") or "no reason given")
    raise EndpointError(
        f"sent a response with the status 'failed': {message} (code {code})",
        status=STATUSES.get(str(code)),
        body=message,
    )


def written_response(text: bytes) -> bytes | None:
    """Return a response as `as_written` does. Raise the same errors as `parsed_response`."""
    response = as_written(text)
    # Parse only texts that may have such a status, because a response may be long.
    if response is not None and _WITHOUT_ANSWER.search(response):
        parsed_response(response)
    return response

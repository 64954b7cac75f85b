"""Detect responses that report a failure of the endpoint although their HTTP status is 200."""

from __future__ import annotations

import re
from contextlib import suppress

import orjson

from nemo_gym.errors import EndpointError
from nemo_gym.jsonl import JsonObject

STATUSES = {"rate_limit_exceeded": 429}
"""The HTTP status of each error code, if it is not 500."""
_FAILED = re.compile(rb'"status"\s*:\s*"failed"')


def check_succeeded(response: JsonObject, url: str) -> None:
    """Raise `EndpointError` if the endpoint at `url` sent a response with the status `failed`."""
    if response.get("status") != "failed":
        return
    error = response.get("error")
    known = error if isinstance(error, dict) else {}
    code, message = known.get("code"), str(known.get("message") or "no reason given")
    raise EndpointError(
        f"{url} sent a response with the status 'failed': {message} (code {code})",
        status=STATUSES.get(str(code), 500),
        body=message,
    )


def check_written(response: bytes, url: str) -> None:
    """Like `check_succeeded`, for a response as JSON text. Only texts that may have the status are parsed."""
    if _FAILED.search(response):
        # Leave invalid JSON to the code that parses the whole response.
        with suppress(orjson.JSONDecodeError):
            check_succeeded(orjson.loads(response), url)

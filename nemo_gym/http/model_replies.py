"""Read replies of model endpoints, which may report a failure although their HTTP status is 200."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache

import orjson

from nemo_gym.errors import EndpointError
from nemo_gym.jsonl import JsonObject, dump_json, without_lone_surrogates
from nemo_gym.opaque import cut_tokens, is_valid_array

STATUSES = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "rate_limit_exceeded": 429,
    "resource_exhausted": 429, "api_error": 500, "server_error": 500, "internal_server_error": 500,
    "unavailable": 503, "timeout_error": 504, "overloaded_error": 529,
}  # fmt: skip
"""The HTTP statuses of errors by their type or code. An error in a reply with status 200 has no other status."""
UNFINISHED = ("cancelled", "in_progress", "queued")
"""The statuses of responses in the background. They contain only a part of the answer, or nothing."""
BROKEN_OFF = frozenset((
    "abort", "aborted", "canceled", "cancelled", "error", "insufficient_system_resource", "network_error",
    "time_limit", "timeout", "user_cancel",
))  # fmt: skip
"""The finish reasons of answers that the endpoint stopped, for example to load new weights."""
UNAVAILABLE = 503
BODY_BEGINNING = 2000
_TO_UNDERSCORES = str.maketrans("- ", "__")
_WITHOUT_ANSWER = re.compile(rb'"status"\s*:\s*"(?:failed|%s)"' % "|".join(UNFINISHED).encode())
_MESSAGES = ("message", "detail", "error_msg", "msg", "error")

logger = logging.getLogger(__name__)


def parsed(text: bytes) -> JsonObject | None:
    """Parse a JSON object. Return None for any other text. Lone surrogates become U+FFFD."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        repaired = _repaired(text)
        return None if repaired == text else parsed(repaired)
    return value if isinstance(value, dict) else None


def as_written(text: bytes) -> bytes | None:
    """Return the text, unparsed, if it begins like a JSON object and its token arrays are valid, otherwise None."""
    # Check the long arrays of tokens. They are not parsed later, and an invalid one would make a result unreadable.
    if not all(map(is_valid_array, cut_tokens(text).arrays)):
        return None
    text = _repaired(text)
    return text if text.lstrip()[:1] == b"{" else None


def parsed_completion(text: bytes, *, accepts_parts: bool = False) -> JsonObject | None:
    """Parse a completion. Raise `EndpointError` for an error, and for an answer that the endpoint stopped.

    With `accepts_parts`, return an answer that was aborted, which can be continued.
    """
    completion = parsed(text)
    if completion is None:
        return None
    _check_error(completion, needed="choices")
    choices = completion["choices"]
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        if choice.get("error"):
            raise _failure(choice["error"], completion)
        name = reason_name(choice.get("finish_reason"))
        if name in BROKEN_OFF and not (accepts_parts and name == "abort"):
            # Engines stop answers to load new weights, for example, so another attempt may succeed.
            raise EndpointError(
                f"stopped before the end of an answer, with the finish_reason '{name}'. The engine's log may have the "
                "cause.",
                status=None if name == "error" else UNAVAILABLE,
            )
    return completion


def parsed_message(text: bytes) -> JsonObject | None:
    """Parse an answer of the Messages API. Raise `EndpointError` for an error."""
    message = parsed(text)
    if message is not None:
        _check_error(message, needed="content")
    return message


def parsed_response(text: bytes) -> JsonObject | None:
    """Parse a response. Raise `EndpointError` for an error, or if its status is `failed` or `UNFINISHED`."""
    response = parsed(text)
    if response is None:
        return None
    status = response.get("status")
    if status in UNFINISHED:
        raise EndpointError(
            f"sent a response with the status '{status}', so the answer is missing. Leave 'background' out of the "
            "request and of extra_body."
        )
    if status != "failed":
        _check_error(response, needed="output")
        return response
    error = response.get("error")
    known = error if isinstance(error, dict) else {}
    code, message = known.get("code"), str(known.get("message") or "no reason given")
    raise EndpointError(
        f"sent a response with the status 'failed': {message} (code {code})",
        status=status_of(known),
        body=_beginning(response),
    )


def written_response(text: bytes) -> bytes | None:
    """Return a response as `as_written` does. Raise the same errors as `parsed_response`."""
    response = as_written(text)
    # Parse only texts that may be a failure, because a response may be long.
    if response is not None and (b'"output"' not in response or _WITHOUT_ANSWER.search(response)):
        parsed_response(response)
    return response


def reason_name(given: object) -> str:
    """Return a finish reason in lower case and without its detail. Gemini writes `content_filter: RECITATION`."""
    value = given.get("type") if isinstance(given, dict) else given
    return str(value or "").partition(":")[0].strip().lower().translate(_TO_UNDERSCORES)


def status_of(error: Mapping[str, object]) -> int | None:
    """Return the HTTP status that an error's code, status or type means, or None if it is unknown."""
    for name in ("code", "status", "type", "error_code"):
        value = error.get(name)
        text = str(value).lower() if isinstance(value, str | int) else ""
        if text.isascii() and text.isdecimal() and len(text) == 3:
            return int(text)
        if text in STATUSES:
            return STATUSES[text]
    return None


def _check_error(reply: Mapping[str, object], *, needed: str) -> None:
    error = reply.get("error")
    if error or needed not in reply or "error" in (reply.get("object"), reply.get("type")):
        raise _failure(error or reply, reply, missing=None if error else needed)


def _failure(error: object, reply: Mapping[str, object], missing: str | None = None) -> EndpointError:
    known = error if isinstance(error, dict) else {"message": error}
    message = next((str(known[name]) for name in _MESSAGES if known.get(name)), None)
    if message is None:
        what = f"a JSON object without '{missing}'" if missing else "an error"
        text = f"answered 200 with {what}: {dump_json(known)[:BODY_BEGINNING].decode('utf-8', 'replace')}"
    else:
        text = f"answered 200 with an error: {message}"
    return EndpointError(text, status=status_of(known), body=_beginning(reply))


def _beginning(reply: Mapping[str, object]) -> str:
    return dump_json(reply)[:BODY_BEGINNING].decode("utf-8", "replace")


def _repaired(text: bytes) -> bytes:
    repaired = without_lone_surrogates(text)
    if repaired != text:
        _warn_of_surrogates()
    return repaired


@cache
def _warn_of_surrogates() -> None:
    # The cache suppresses repeated warnings.
    logger.warning("A model endpoint sent text with a lone surrogate, which is not Unicode. It is read as U+FFFD.")

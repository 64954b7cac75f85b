"""Find the endpoint's own reply in an error of litellm."""

import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import NoReturn

import httpx

from nemo_gym import EndpointError
from nemo_gym.jsonl import dump_json

UNSUPPORTED = re.compile(r"does not support parameters: \[(?P<names>[^\]]*)\]")
PREFIX = re.compile(r"(?:(?:litellm\.)?\w+(?:Error|Exception):? (?:- )?)+")
"""The class names at the beginning of litellm's messages."""
UNKNOWN = 500
"""The status of litellm's errors that have no better one."""
MAX_MESSAGE = 1000

Reply = tuple[int, bytes, Mapping[str, str]]
"""The status, the body and the headers of an endpoint's reply."""


def reply_of_error(litellm: ModuleType, error: Exception, *, model: str, server: str) -> Reply:
    """Return the endpoint's reply.

    Raise `EndpointError` if there is none, for example because the endpoint cannot be reached.
    """
    reply = next(
        (each.response for each in reversed(list(_chain(error))) if isinstance(each, httpx.HTTPStatusError)), None
    )
    text = PREFIX.sub("", str(error), count=1)[:MAX_MESSAGE]
    status = getattr(error, "status_code", None)
    if isinstance(error, litellm.ContextWindowExceededError):
        return 400, _body(text, code="context_length_exceeded"), {}
    if isinstance(error, litellm.ContentPolicyViolationError):
        return 400, _body(text, code="content_policy_violation"), {}
    if isinstance(error, litellm.AuthenticationError | litellm.PermissionDeniedError):
        return status or 401, _body(f"{_with_dot(text)} {_key_advice(litellm, model, server)}"), {}
    if isinstance(error, litellm.UnsupportedParamsError):
        raise EndpointError(_unsupported(text, model)) from error
    if reply is not None:
        return reply.status_code, _content(reply, text), reply.headers
    if isinstance(error, litellm.exceptions.MidStreamFallbackError):
        # Another attempt may succeed, because the endpoint began to answer.
        return UNKNOWN, _body(text), {}
    if isinstance(status, int) and status != UNKNOWN:
        return status, _body(text), {}
    _raise_without_reply(error, text)


def _raise_without_reply(error: Exception, text: str) -> NoReturn:
    trouble = next((each for each in _chain(error) if isinstance(each, httpx.TransportError)), None)
    if isinstance(trouble, httpx.ConnectError):
        raise EndpointError(f"could not connect: {trouble}", was_sent=False) from error
    if trouble is not None:
        raise EndpointError(f"lost the connection: {trouble or type(trouble).__name__}") from error
    raise EndpointError(f"failed in litellm: {text.partition(' Traceback (most recent')[0]}") from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, from the outermost."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _content(reply: httpx.Response, text: str) -> bytes:
    try:
        return reply.content
    except httpx.ResponseNotRead:
        # The reply to a request for a stream.
        return _body(text)


def _body(message: str, *, code: str | None = None) -> bytes:
    return dump_json({"error": {"message": message, "code": code}})


def _unsupported(text: str, model: str) -> str:
    found = UNSUPPORTED.search(text)
    names = found["names"].replace("'", "") if found else text
    return (
        f"was not sent, because litellm cannot send {names} to {model}. Leave these fields out of the requests, list "
        "them in omitted_fields, or allow them with litellm_params: {allowed_openai_params: [...]}"
    )


def _key_advice(litellm: ModuleType, model: str, server: str) -> str:
    names = litellm.validate_environment(model=model)["missing_keys"]
    variables = f", or the environment variable {' or '.join(names)}" if names else ""
    return f"Set api_key of {server} (policy_api_key in env.yaml){variables}."


def _with_dot(text: str) -> str:
    return f"{text.rstrip('.')}."

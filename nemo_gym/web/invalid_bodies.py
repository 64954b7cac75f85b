"""The 422 response for an invalid request body, in FastAPI's format."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from nemo_gym.config.explain import with_known_fields

MAX_PROBLEMS = 100
"""Maximum number of problems in a response. Further ones are left out."""
LONGEST_INPUT = 2000
"""Maximum number of characters of a problem's `input`, because the invalid input may be the whole body."""


async def invalid_body_response(request: Request, error: Exception) -> Response:
    """Return a 422 response that lists the problems, even if the invalid input cannot be written as JSON."""
    assert isinstance(error, RequestValidationError)
    body = getattr(request.scope.get("route"), "body_field", None)
    kind = body.field_info.annotation if body else None
    problems = [_as_json(with_known_fields(each, kind)) for each in error.errors()[:MAX_PROBLEMS]]
    return Response(json.dumps({"detail": problems}), 422, media_type="application/json")


def _as_json(problem: Mapping[str, object]) -> dict[str, object]:
    fields = {key: _writable(value) for key, value in problem.items()}
    given = fields.get("input")
    if len(found := json.dumps(given)) <= LONGEST_INPUT:
        return fields
    if fields.get("type") == "missing" and isinstance(given, dict) and len(json.dumps([*given])) <= LONGEST_INPUT:
        # Show only the keys, because one may be a typo of the missing key. Their values are not the problem.
        return {**fields, "input": dict.fromkeys(given, "…")}
    return {**fields, "input": f"{found[:LONGEST_INPUT]}…"}


def _writable(value: object) -> object:
    """Return a copy that can be written as JSON and read by every parser."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(_writable(key)): _writable(child) for key, child in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_writable(each) for each in value]
    if value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    # Show only the size of a huge integer, because Python refuses to convert thousands of digits to text.
    if isinstance(value, int) and value.bit_length() <= 64:
        return value
    return f"{type(value).__name__} of {value.bit_length()} bits" if isinstance(value, int) else str(value)

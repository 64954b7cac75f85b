"""What a caller is told whose body is not what a route takes: FastAPI's answer, for any body whatsoever."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

PROBLEMS_TOLD = 100
"""A body may be wrong in more places than it is worth telling."""
LONGEST_INPUT = 2000
"""Characters; each problem brings what was found in its place, which may be the whole body."""


async def invalid_body_response(request: Request, error: Exception) -> Response:
    """Status 422 and every problem with its place; also where what was sent cannot be written as JSON."""
    assert isinstance(error, RequestValidationError)
    problems = [_told(each) for each in error.errors()[:PROBLEMS_TOLD]]
    return Response(json.dumps({"detail": problems}), 422, media_type="application/json")


def _told(problem: Mapping[str, Any]) -> dict[str, Any]:
    told = {key: _writable(value) for key, value in problem.items()}
    found = json.dumps(told.get("input"))
    return told if len(found) <= LONGEST_INPUT else {**told, "input": f"{found[:LONGEST_INPUT]}…"}


def _writable(value: Any) -> Any:
    """A copy that JSON has words for, and every reader of JSON understands."""
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
    # An integer of thousands of digits cannot even be written out.
    if isinstance(value, int) and value.bit_length() <= 64:
        return value
    return f"{type(value).__name__} of {value.bit_length()} bits" if isinstance(value, int) else str(value)

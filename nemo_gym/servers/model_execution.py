"""A record of how a model server got its answer. Only server folders written for release 0.7 use it."""

from __future__ import annotations

from typing import TypedDict

from starlette.requests import Request


class ModelExecution(TypedDict):
    """The origin of a model server's answer. The server folder fills in all fields but `upstream_attempted`."""

    upstream_attempted: bool
    """Whether the model's endpoint was called."""
    response_source: str | None
    upstream_status_code: int | None
    local_response_reason: str | None


def start_model_execution(request: Request, *, upstream_attempted: bool) -> ModelExecution:
    """Store a new record in `request.state.nemo_gym_model_execution`, and return it for the caller to fill in."""
    execution = ModelExecution(
        upstream_attempted=upstream_attempted,
        response_source=None,
        upstream_status_code=None,
        local_response_reason=None,
    )
    request.state.nemo_gym_model_execution = execution
    return execution

"""The origin of a model server's answer, which release 0.7 folders note on the request; only such folders use it."""

from __future__ import annotations

from typing import TypedDict

from starlette.requests import Request


class ModelExecution(TypedDict):
    """The origin of an answer; all but the first field are set by the folder."""

    upstream_attempted: bool
    """Whether the model's endpoint was asked."""
    response_source: str | None
    upstream_status_code: int | None
    local_response_reason: str | None


def start_model_execution(request: Request, *, upstream_attempted: bool) -> ModelExecution:
    """Note a new execution on `request.state.nemo_gym_model_execution`, and return it to be filled in."""
    execution = ModelExecution(
        upstream_attempted=upstream_attempted,
        response_source=None,
        upstream_status_code=None,
        local_response_reason=None,
    )
    request.state.nemo_gym_model_execution = execution
    return execution

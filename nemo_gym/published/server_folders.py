"""Functions and settings that server folders import and that do little here, because servers start differently."""

from __future__ import annotations

from typing import TypedDict

from pydantic import BaseModel
from starlette.requests import Request

from nemo_gym.config.view import current_view
from nemo_gym.errors import LaunchError


class UvicornLoggingConfig(BaseModel):
    """The setting that makes servers log each successful request."""

    uvicorn_logging_show_200_ok: bool = False


def is_nemo_gym_fastapi_worker() -> bool:
    """Return False: every process imports the server's class and makes the app itself, never from a server's file."""
    return False


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Return False: no file has to define `app = X.run_webserver()` for workers."""
    return False


def initialize_ray() -> None:
    """Connect this process once to the cluster at `ray_head_node_address`, or start Ray on this machine.

    Raise `LaunchError` if Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise LaunchError("Ray is not installed here. Install it: pip install 'nemo-gym[ray]'") from error
    if not ray.is_initialized():
        config = current_view()
        address = config.get("ray_head_node_address") if config is not None else None
        ray.init(address=address, ignore_reinit_error=True, include_dashboard=False)


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

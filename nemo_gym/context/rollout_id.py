"""The id of the rollout that the current task works for. Every call has the id in a header or in its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import BaseModel

from nemo_gym.context.current import begin_work, current_work, end_work
from nemo_gym.schemas.rollout import ROLLOUT_HEADER
from nemo_gym.schemas.row import ROLLOUT_ID_PATTERN, Row

if TYPE_CHECKING:
    from starlette.types import Scope

ROLLOUT_PATH_PREFIX = "ng-rollout"
ROLLOUT_PREFIX = f"/{ROLLOUT_PATH_PREFIX}/"
ROLLOUT_PARAMETER = "rollout_id"
TOKEN_CAPTURE_PATH_SEGMENT = "training-token-capture"
TOKEN_CAPTURE_SEGMENT = f"/{TOKEN_CAPTURE_PATH_SEGMENT}"
TOKEN_CAPTURE_SCOPE_KEY = "nemo_gym.captures_tokens"
PREFIXED_PATH_SCOPE_KEY = "nemo_gym.prefixed_path"
"""ASGI scope key for the original path, with the prefix. Handlers find this path in `request.url.path`."""


def current_rollout_id() -> str | None:
    """Return the id of the current rollout, or None if there is none."""
    return current_work().rollout_id


class rollout_context:  # noqa: N801 - used as `with rollout_context(id):`
    """Context manager that makes a rollout the current one for everything awaited inside."""

    __slots__ = ("_rollout_id", "_token")

    def __init__(self, rollout_id: str | None) -> None:
        self._rollout_id = rollout_id

    def __enter__(self) -> None:
        before = current_work()
        self._token = begin_work(before._replace(rollout_id=self._rollout_id))

    def __exit__(self, *_: object) -> None:
        end_work(self._token)


def rollout_path_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """Return the path prefix of a rollout, `/ng-rollout/<id>`, or an empty string if there is no id."""
    if not rollout_id:
        return ""
    return f"{ROLLOUT_PREFIX}{rollout_id}{TOKEN_CAPTURE_SEGMENT if token_capture else ''}"


def apply_rollout_prefix(base_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """Return a server's URL with the path prefix of a rollout, or the URL unchanged if there is no id."""
    prefix = rollout_path_prefix(rollout_id, token_capture=token_capture)
    return base_url.rstrip("/") + prefix if prefix else base_url


def strip_rollout_prefix(scope: Scope) -> str | None:
    """Remove `/ng-rollout/<id>` from a request's path and return the id. Return None if there is no such prefix.

    Handlers also find the id in `request.path_params["rollout_id"]`.
    """
    path: str = scope["path"]
    if not path.startswith(ROLLOUT_PREFIX):
        return None
    rollout_id, _, rest = path.removeprefix(ROLLOUT_PREFIX).partition("/")
    if not ROLLOUT_ID_PATTERN.fullmatch(rollout_id):
        return None
    rest = f"/{rest}"
    if rest == TOKEN_CAPTURE_SEGMENT or rest.startswith(f"{TOKEN_CAPTURE_SEGMENT}/"):
        rest = rest.removeprefix(TOKEN_CAPTURE_SEGMENT) or "/"
        scope[TOKEN_CAPTURE_SCOPE_KEY] = True
    scope[PREFIXED_PATH_SCOPE_KEY] = path
    # Set the parameter that a route with `{rollout_id}` in its path would set.
    scope["path_params"] = {**scope.get("path_params", {}), ROLLOUT_PARAMETER: rollout_id}
    scope["path"] = rest
    scope["raw_path"] = quote(rest).encode()
    return rollout_id


def move_rollout_id(scope: Scope) -> str | None:
    """Move the rollout id from a request's path to a header, for the inner layers.

    Return the id, or None if the path has none.
    """
    rollout_id = strip_rollout_prefix(scope)
    if rollout_id is not None:
        name = ROLLOUT_HEADER.encode()
        others = [header for header in scope["headers"] if header[0] != name]
        scope["headers"] = [*others, (name, rollout_id.encode())]
    return rollout_id


def wants_tokens(scope: Scope) -> bool:
    """Return whether the removed prefix of a request's path asks for token capture."""
    return scope.get(TOKEN_CAPTURE_SCOPE_KEY) is True


def maybe_rollout_id_from_run_body(body: object) -> str | None:
    """Return the rollout id of a run request (a model or a mapping), or None if it is missing or invalid."""
    row = {**body.__dict__, **(body.model_extra or {})} if isinstance(body, BaseModel) else body
    try:
        return Row(dict(row)).rollout_id if isinstance(row, Mapping) else None
    except ValueError:
        return None

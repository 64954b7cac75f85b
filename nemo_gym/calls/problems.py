"""Failures between processes, as problem bodies (RFC 9457) and failed rows that keep the cause."""

from __future__ import annotations

from collections.abc import Awaitable, Container
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from nemo_gym.errors import (
    FAILURES,
    EndpointError,
    EnvironmentFailed,
    InvalidTask,
    Overloaded,
    RolloutError,
    ServerCallError,
    ServerLost,
)
from nemo_gym.http.reply import BrokenReply, HungUp, NotConnected, readable
from nemo_gym.schemas.row import Row

OVERLOADED_STATUSES = (429, 503)
MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """A failed call, in a form that lets its receiver pass on the cause."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    failure_class: str
    server: str | None = None
    tier: str | None = None

    @classmethod
    def of_error(cls, error: RolloutError) -> Problem:
        """Return the problem to send as the reply after this error."""
        return cls(
            title=error.failure_class.replace("_", " "),
            status=error.status,
            detail=str(error),
            failure_class=error.failure_class,
            server=error.server,
            tier=error.tier,
        )

    def to_error(self) -> RolloutError:
        """Return the error that the sender raised."""
        return FAILURES.get(self.failure_class, RolloutError)(self.detail, server=self.server, tier=self.tier)


def problem_of_body(body: bytes) -> Problem | None:
    """Parse a problem body. Return None for any other body."""
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def failure_of_reply(
    status: int, body: bytes, *, server: str, during: str, otherwise: type[RolloutError]
) -> RolloutError:
    """Return the failure for an error status: that of its problem body, else `otherwise` with the body's beginning.

    If an environment rejects the row itself, that is `InvalidTask` and not a failure of the environment.
    """
    problem = problem_of_body(body)
    if problem is not None:
        return problem.to_error()
    if status == InvalidTask.status and otherwise is EnvironmentFailed and _is_about_the_row(body):
        return InvalidTask(
            f"{server}: {during} answered {status}: {readable(body)}", server=server, tier=otherwise.default_tier
        )
    return otherwise(f"{server}: {during} answered {status}: {readable(body)}", server=server)


def failure_of_call(
    error: ServerCallError, *, server: str, otherwise: type[RolloutError], during: str = ""
) -> RolloutError:
    """Return the failure for a call without a reply: the server is lost or overloaded, else `otherwise`."""
    kind = otherwise
    if isinstance(error, NotConnected | HungUp | BrokenReply):
        kind = ServerLost
    elif isinstance(error, EndpointError) and error.status in OVERLOADED_STATUSES:
        kind = Overloaded
    return kind(f"{during}: {error}" if during else str(error), server=server, tier=otherwise.default_tier)


async def reply_to(
    call: Awaitable[Any],
    *,
    server: str,
    during: str,
    otherwise: type[RolloutError],
    tolerates: Container[int] = (),
) -> Any:
    """Return the reply to a call. Raise the failure if there is no reply, or if its status is an error.

    The caller handles the statuses in `tolerates` itself.
    """
    try:
        reply = await call
    except ServerCallError as error:
        raise failure_of_call(error, server=server, otherwise=otherwise) from error
    if not reply.ok and reply.status not in tolerates:
        raise failure_of_reply(reply.status, await reply.read(), server=server, during=during, otherwise=otherwise)
    return reply


def failure_of_row(row: Row) -> RolloutError | None:
    """Return the failure that a row has instead of a reward, or None if it has none."""
    cause = row.failure_class
    if cause is None:
        return None
    message = row.failure_message or f"the rollout failed ({cause})"
    return FAILURES.get(cause, RolloutError)(message, server=row.failure_server, tier=row.failure_tier)


def _is_about_the_row(body: bytes) -> bool:
    """Return whether the validation errors concern only the row, and not the response that the agent added."""
    try:
        problems = orjson.loads(body)["detail"]
        return bool(problems) and all(each["loc"][0] == "body" and "response" not in each["loc"] for each in problems)
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False

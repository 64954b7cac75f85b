"""How a failure keeps its cause when it crosses processes: problem bodies (RFC 9457), and rows that tell of it."""

from __future__ import annotations

from collections.abc import Awaitable, Container, Mapping
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
from nemo_gym.schemas.rollout import (
    FAILURE_CLASS_KEY,
    FAILURE_MESSAGE_KEY,
    FAILURE_SERVER_KEY,
    FAILURE_TIER_KEY,
    JUDGE_ERROR_KEY,
)

OVERLOADED_STATUSES = (429, 503)
MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """A failed call, told so that its receiver can pass the cause on."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    failure_class: str
    server: str | None = None
    tier: str | None = None

    @classmethod
    def of_error(cls, error: RolloutError) -> Problem:
        """What to answer where a rollout's call ended in this error."""
        return cls(
            title=error.failure_class.replace("_", " "),
            status=error.status,
            detail=str(error),
            failure_class=error.failure_class,
            server=error.server,
            tier=error.tier,
        )

    def to_error(self) -> RolloutError:
        """The error that the sender raised."""
        return FAILURES.get(self.failure_class, RolloutError)(self.detail, server=self.server, tier=self.tier)


def problem_of_body(body: bytes) -> Problem | None:
    """The problem that a body tells of; None where it is something else."""
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def failure_of_reply(
    status: int, body: bytes, *, server: str, during: str, otherwise: type[RolloutError]
) -> RolloutError:
    """The failure behind an error status: the one its body tells of, else `otherwise` with the body's beginning.

    A row that an environment does not take is no failure of the environment: that is `InvalidTask`.
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
    """The failure behind a call that brought no answer: the server is gone, or `otherwise`."""
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
    """The reply to a call of a server; raises the failure behind one that did not come, or that tells of an error.

    Statuses in `tolerates` are the caller's to understand.
    """
    try:
        reply = await call
    except ServerCallError as error:
        raise failure_of_call(error, server=server, otherwise=otherwise) from error
    if not reply.ok and reply.status not in tolerates:
        raise failure_of_reply(reply.status, await reply.read(), server=server, during=during, otherwise=otherwise)
    return reply


def failure_of_row(row: Mapping[str, Any]) -> RolloutError | None:
    """The failure that an answered row tells of in place of a reward; None where it tells of none."""
    cause = row.get(FAILURE_CLASS_KEY)
    if not cause:
        return None
    told = row.get(JUDGE_ERROR_KEY) or row.get(FAILURE_MESSAGE_KEY) or f"the rollout failed ({cause})"
    return FAILURES.get(cause, RolloutError)(
        str(told), server=row.get(FAILURE_SERVER_KEY), tier=row.get(FAILURE_TIER_KEY)
    )


def _is_about_the_row(body: bytes) -> bool:
    """Whether a refusal names parts of the row alone, and not the response that the agent laid beside it."""
    try:
        problems = orjson.loads(body)["detail"]
        return bool(problems) and all(each["loc"][0] == "body" and "response" not in each["loc"] for each in problems)
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False

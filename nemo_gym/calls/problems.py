"""Conversion of failures to problem bodies (RFC 9457) and back, so that a failure's cause reaches other processes."""

from __future__ import annotations

from collections.abc import Awaitable, Container
from operator import not_
from typing import Any, cast

import orjson
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from nemo_gym.config.explain import problems_of
from nemo_gym.errors import (
    FAILURES,
    EndpointError,
    EnvironmentFailed,
    InvalidTask,
    ModelFailed,
    Overloaded,
    RolloutError,
    ServerCallError,
    ServerLost,
)
from nemo_gym.http.reply import BrokenReply, HungUp, NoFreeConnection, NotConnected, ServerReplied, readable
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.responses import MODEL_PATHS
from nemo_gym.schemas.row import Row
from nemo_gym.text import closest

OVERLOADED_STATUSES = (429, 503, 529)
REFUSED_REQUEST = (400, 413, 422)
"""HTTP statuses with which a server rejects a request that it will never accept."""
MEDIA_TYPE = "application/problem+json"
PROBABLY_MEANT = 0.75
"""The minimum similarity at which a field of a row counts as a possible typo of a missing field."""


class Problem(BaseModel):
    """The body of a reply that describes a failed call, so that the receiver can pass on the cause."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    failure_class: str
    server: str | None = None
    tier: str | None = None
    log_file: str | None = Field(default=None, exclude_if=not_)
    """The path of the failed server's log."""
    conversation: JsonObject | None = Field(default=None, exclude_if=not_)
    """The last `items` of a failed rollout's conversation, and the number of items `omitted` before them."""

    @classmethod
    def of_error(cls, error: RolloutError) -> Problem:
        """Return the problem to send as the reply to a call that failed with this error."""
        return cls(
            title=error.failure_class.replace("_", " "),
            status=error.status,
            detail=str(error),
            failure_class=error.failure_class,
            server=error.server,
            tier=error.tier,
            log_file=error.log_file,
        )

    def to_error(self) -> RolloutError:
        """Return the error that the sender raised."""
        error = FAILURES.get(self.failure_class, RolloutError)(self.detail, server=self.server, tier=self.tier)
        error.log_file, error.conversation = self.log_file, self.conversation
        if isinstance(error, InvalidTask):
            error.status = self.status
        return error


def problem_of_body(body: bytes) -> Problem | None:
    """Parse a problem body. Return None for any other body."""
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def failure_of_reply(
    status: int, body: bytes, *, server: str, during: str, otherwise: type[RolloutError]
) -> RolloutError:
    """Return the failure for a reply with an error status.

    A problem body contains the failure. If an environment rejects the row, or a model server rejects the request, the
    failure is `InvalidTask`, because the server is not at fault. Any other reply becomes `otherwise` with the
    beginning of the body.
    """
    problem = problem_of_body(body)
    if problem is not None:
        return problem.to_error()
    is_of_a_row = status == InvalidTask.status and otherwise in (EnvironmentFailed, InvalidTask)
    if is_of_a_row and (faults := faults_in_reply(body, f"{during.removeprefix('/')} of {server}")):
        return InvalidTask("; ".join(faults), server=server, tier=otherwise.default_tier)
    answered = f"{server}: {during} answered {status}: {readable(body)}"
    if status in REFUSED_REQUEST and otherwise is ModelFailed:
        return _refused_by_model(answered, server, status)
    return otherwise(answered, server=server)


def failure_of_call(
    error: ServerCallError, *, server: str, otherwise: type[RolloutError], during: str = ""
) -> RolloutError:
    """Return the failure for a failed call: `ServerLost`, `Overloaded`, or else `otherwise`.

    If a model server replied that it rejects the request, the failure is `InvalidTask`.
    """
    kind = otherwise
    if isinstance(error, ServerReplied) and error.status in REFUSED_REQUEST and error.url.endswith(MODEL_PATHS):
        return _refused_by_model(f"{during}: {error}" if during else str(error), server, error.status)
    if isinstance(error, NoFreeConnection):
        kind = Overloaded
    elif isinstance(error, NotConnected | HungUp | BrokenReply):
        kind = ServerLost
    elif isinstance(error, EndpointError) and error.status in OVERLOADED_STATUSES:
        kind = Overloaded
    return kind(f"{during}: {error}" if during else str(error), server=server, tier=otherwise.default_tier)


def _refused_by_model(message: str, server: str, status: int) -> InvalidTask:
    # Return `InvalidTask`, because the model server itself rejected the request. Errors of the model's endpoint arrive
    # as problem bodies, and this reply does not contain one.
    refused = InvalidTask(message, server=server, tier=ModelFailed.default_tier)
    refused.status = status
    return refused


async def reply_to(
    call: Awaitable[Any],
    *,
    server: str,
    during: str,
    otherwise: type[RolloutError],
    tolerates: Container[int] = (),
) -> Any:
    """Return the reply to a call. Raise the failure if there is no reply, or if the reply has an error status.

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
    """Return the failure that a row has instead of a reward, or None for any other row."""
    cause = row.failure_class
    if cause is None:
        return None
    message = row.failure_message or f"the rollout failed ({cause})"
    return FAILURES.get(cause, RolloutError)(message, server=row.failure_server, tier=row.failure_tier)


def faults_in_reply(body: bytes, needed_by: str) -> list[str]:
    """Describe a row's validation errors in a server's reply. Return an empty list for any other reply."""
    try:
        return faults_of_row(orjson.loads(body)["detail"], needed_by)
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return []


def faults_of_row(details: list[dict[str, Any]], needed_by: str) -> list[str]:
    """Describe the validation errors of a row. Return an empty list if any error concerns the row's response."""
    if not all(each["loc"][0] == "body" and "response" not in each["loc"] for each in details):
        return []
    missing = {".".join(map(str, each["loc"][1:])): each for each in details if each["type"] == "missing"}
    problems = problems_of(cast(ErrorDetails, {**each, "loc": each["loc"][1:]}) for each in details)
    faults = []
    for name, each in missing.items():
        keys = each["input"] if isinstance(each.get("input"), dict) else ()
        meant = closest(each["loc"][-1], keys, PROBABLY_MEANT)
        faults.append(
            f"the row lacks '{name}', which {needed_by} needs" + (f"; is '{meant}' a typo?" if meant else "")
        )
    others = {name: problem for name, problem in problems.items() if name not in missing}
    return faults + [f"the row's '{name}' is invalid for {needed_by}: {problem}" for name, problem in others.items()]

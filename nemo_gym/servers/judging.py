"""What a verifier answers when its judge failed: the row, so that it can be judged again, and the cause."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from nemo_gym.errors import JudgeFailed
from nemo_gym.schemas.rollout import FAILURE_CLASS_KEY, FAILURE_HEADER, FAILURE_SERVER_KEY, JUDGE_ERROR_KEY

logger = logging.getLogger(__name__)

Verify = Callable[..., Awaitable[Any]]


def told_of_judge(error: JudgeFailed) -> dict[str, Any]:
    """The fields that make a row one whose judge failed; the collector counts it as failed, whatever its reward."""
    logger.warning("the judge failed: %s", error)
    server = {FAILURE_SERVER_KEY: error.server} if error.server else {}
    return {"reward": 0.0, FAILURE_CLASS_KEY: error.failure_class, JUDGE_ERROR_KEY: str(error), **server}


def judge_failsafe(verify_fn: Verify) -> Verify:
    """The same endpoint, for which a judge's failure is an answer (status 200): the request's body and the cause.

    `SimpleResourcesServer` does so by itself; this is for a `/verify` route that an author adds.
    """
    signature = inspect.signature(verify_fn)

    @wraps(verify_fn)
    async def graded(*arguments: Any, **named: Any) -> Any:
        try:
            return await verify_fn(*arguments, **named)
        except JudgeFailed as error:
            given = signature.bind(*arguments, **named).arguments
            body = given.get("body") or next(value for value in given.values() if isinstance(value, BaseModel))
            row = {**body.model_dump(mode="json"), **told_of_judge(error)}
            headers = {FAILURE_HEADER: error.failure_class}
            return Response(orjson.dumps(row), media_type="application/json", headers=headers)

    return graded

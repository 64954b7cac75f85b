"""Wrappers that report the failure of a judge, for servers that call the judge or add `/verify` themselves."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel

from nemo_gym.errors import JudgeFailed
from nemo_gym.jsonl import dump_json
from nemo_gym.servers.judging import failure_fields, mark_failed
from nemo_gym.web.json_response import WrittenJson

ResultT = TypeVar("ResultT")
Verify = Callable[..., Awaitable[Any]]


async def reraise_judge_errors(awaitable: Awaitable[ResultT]) -> ResultT:
    """Await a call to a judge and convert any exception to `JudgeFailed`."""
    try:
        return await awaitable
    except JudgeFailed:
        raise
    except Exception as error:
        raise JudgeFailed(f"the judge failed: {type(error).__name__}: {error}") from error


def judge_failsafe(verify_fn: Verify) -> Verify:
    """Wrap a `/verify` endpoint. A judge's failure becomes a reply with status 200, the request's row and the cause.

    `SimpleResourcesServer` does this itself. Use this wrapper for a `/verify` route that you add.
    """
    signature = inspect.signature(verify_fn)

    @wraps(verify_fn)
    async def graded(*arguments: Any, **named: Any) -> Any:
        try:
            return await verify_fn(*arguments, **named)
        except JudgeFailed as error:
            given = signature.bind(*arguments, **named).arguments
            body = given.get("body") or next(value for value in given.values() if isinstance(value, BaseModel))
            row = {**body.model_dump(mode="json"), **failure_fields(error)}
            return mark_failed(WrittenJson(dump_json(row)), error)

    return graded

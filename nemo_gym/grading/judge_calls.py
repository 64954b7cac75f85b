"""Call a judge, so that whatever keeps it from answering is told as the judge's failure."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nemo_gym.errors import JudgeFailed, RolloutTimedOut, ServerCallError
from nemo_gym.http.client import ServerClient, get_response_json, raise_for_status
from nemo_gym.http.deadline import deadline_in, time_left_s, told_to_callee
from nemo_gym.http.problems import problem_of_body, readable

ModelT = TypeVar("ModelT", bound=BaseModel)
ResultT = TypeVar("ResultT")


async def call_judge(
    server_client: ServerClient, *, server_name: str, url_path: str, json: Any, response_model: type[ModelT]
) -> ModelT:
    """Post to the server that judges, and read its answer as `response_model`.

    Raises `JudgeFailed` for anything else than such an answer.
    """
    left_s = time_left_s()
    try:
        # The judge's time ends before the verifier's, so that an answer that could not be graded is still told.
        with deadline_in(None if left_s is None else told_to_callee(left_s)):
            reply = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        if not reply.ok:
            reading = reply.read()
            if not isawaitable(reading):
                # A stand-in that knows what `raise_for_status` asks of a reply, and no more.
                await raise_for_status(reply)
            body = await reading
            problem = problem_of_body(body)
            told = problem.detail if problem else readable(body)
            # Tests of published folders hand in replies that have no more than `ok`, `cookies` and `read`.
            status = getattr(reply, "status", "an error")
            raise JudgeFailed(f"the judge '{server_name}' answered {status}: {told}", server=server_name)
        return response_model.model_validate(await get_response_json(reply))
    except JudgeFailed:
        raise
    except (ServerCallError, RolloutTimedOut) as error:
        raise JudgeFailed(f"the judge did not answer: {error}", server=server_name) from error
    except ValidationError as error:
        raise JudgeFailed(
            f"the judge '{server_name}' answered what is no {response_model.__name__}: {error}", server=server_name
        ) from error
    except Exception as error:
        # An answer was not graded because of the judge, whatever was wrong with it: that is no reason for a reward.
        raise JudgeFailed(f"the judge '{server_name}' failed: {_named(error)}", server=server_name) from error


async def reraise_judge_errors(awaitable: Awaitable[ResultT]) -> ResultT:
    """Await what asks a judge in some other way; whatever it raises becomes `JudgeFailed`."""
    try:
        return await awaitable
    except JudgeFailed:
        raise
    except Exception as error:
        raise JudgeFailed(f"the judge failed: {_named(error)}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

"""Call a judge, and report every problem with it as `JudgeFailed`."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from nemo_gym.calls.client import ServerClient, get_response_json
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import problem_of_body
from nemo_gym.context.deadline import deadline_in, time_left_for_callee, time_left_s
from nemo_gym.errors import JudgeFailed, RolloutTimedOut, ServerCallError
from nemo_gym.http.reply import readable
from nemo_gym.text import with_article

ModelT = TypeVar("ModelT", bound=BaseModel)


async def call_judge(
    server_client: ServerClient, *, server_name: str, url_path: str, json: object, response_model: type[ModelT]
) -> ModelT:
    """Post to a judge's server and parse its reply as `response_model`. Raise `JudgeFailed` for any failure."""
    left_s = time_left_s()
    try:
        # Give the judge an earlier deadline than the verifier, so that time is left to report a failure of the judge.
        with deadline_in(None if left_s is None else time_left_for_callee(left_s)):
            reply = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        if not reply.ok:
            status, body = await hooks().failed_reply(reply)
            problem = problem_of_body(body)
            detail = problem.detail if problem else readable(body)
            raise JudgeFailed(f"the judge '{server_name}' answered {status}: {detail}", server=server_name)
        return response_model.model_validate(await get_response_json(reply))
    except JudgeFailed:
        raise
    except (ServerCallError, RolloutTimedOut) as error:
        raise JudgeFailed(f"the judge did not answer: {error}", server=server_name) from error
    except ValidationError as error:
        raise JudgeFailed(
            f"the judge '{server_name}' did not answer with {with_article(response_model.__name__)}: {error}",
            server=server_name,
        ) from error
    except Exception as error:
        # Any failure of the judge fails the rollout: an answer that was not graded must not get a reward.
        raise JudgeFailed(
            f"the judge '{server_name}' failed: {type(error).__name__}: {error}", server=server_name
        ) from error

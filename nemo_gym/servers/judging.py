"""A judge's failure, from the verifier to the reply of `/run`.

By contract, a verifier whose judge failed replies with status 200, the request's row, the failure class and the
reward 0. Agents of other packages parse this reply with their own response models, which drop the failure class, so
the rollout would count as graded. The verifier therefore repeats the failure class in a header. While an agent runs
a rollout, `JudgeFailures` looks for this header in every reply, and `/run` adds the failure to the agent's reply.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from nemo_gym.context.current import begin_work, current_work, end_work
from nemo_gym.errors import JudgeFailed
from nemo_gym.http.reply import Reply
from nemo_gym.jsonl import JsonObject, dump_json, loads_exact
from nemo_gym.schemas.rollout import FAILURE_HEADER
from nemo_gym.schemas.row import FAILURE_CLASS_KEY, Row, marks_of_failure
from nemo_gym.web.json_response import WrittenJson

logger = logging.getLogger(__name__)

_HEADER = FAILURE_HEADER.encode()


def failure_fields(error: JudgeFailed) -> Mapping[str, object]:
    """Return the fields that mark a row as failed by its judge. The collector ignores the reward of such a row."""
    logger.warning("the judge failed: %s", error)
    return {"reward": 0.0, **marks_of_failure(error.failure_class, str(error), error.server, is_of_judge=True)}


def mark_failed(answer: Response, error: JudgeFailed) -> Response:
    """Add the failure header to a verifier's reply."""
    answer.headers[FAILURE_HEADER] = error.failure_class
    return answer


class JudgeFailures:
    """Recorder of the last judge failure in the replies to calls made inside the `with` block."""

    def __init__(self) -> None:
        self._last: JsonObject | None = None

    def __enter__(self) -> JudgeFailures:
        before = current_work()
        self._token = begin_work(before._replace(on_reply=self._read))
        return self

    def __exit__(self, *_: object) -> None:
        end_work(self._token)

    def _read(self, reply: Reply) -> None:
        # Use a loop, because this runs for each reply and a generator expression takes twice as long.
        for name, _ in reply.raw_headers:
            if name.lower() == _HEADER and reply.status == 200:
                self._last = loads_exact(reply.body)

    def written_into(self, result: Any) -> Any:
        """Return the agent's reply. If the verifier reported a judge failure, add the failure to the reply."""
        if self._last is None or (isinstance(result, Response) and f'"{FAILURE_CLASS_KEY}"'.encode() in result.body):
            return result
        marks = {**Row(self._last).failure_fields, "reward": self._last.get("reward")}
        if isinstance(result, Response):
            row = loads_exact(bytes(result.body))
        else:
            row = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
        return WrittenJson(dump_json({**row, **marks}))

"""One task to one record, good or failed: nothing that happens to a rollout reaches the run."""

from __future__ import annotations

import logging
import math
from typing import Any

import orjson

from nemo_gym.errors import AgentFailed, EnvironmentFailed, RolloutError, RolloutTimedOut, ServerCallError
from nemo_gym.http.client import ServerClient
from nemo_gym.http.correlation import rollout_context
from nemo_gym.http.problems import failure_of_reply, readable
from nemo_gym.http.reply import ReplyTimedOut, Timeouts
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.schemas.rollout import (
    AGENT_REF_KEY,
    ATTEMPT_INDEX_KEY,
    FAILURE_CLASS_KEY,
    FAILURE_MESSAGE_KEY,
    FAILURE_SERVER_KEY,
    NO_PERSIST_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    SKILLS_REF_KEY,
    TASK_INDEX_KEY,
    rollout_id_of_row,
)

logger = logging.getLogger(__name__)

JSON = {"content-type": "application/json"}
CARRIED_KEYS = (
    TASK_INDEX_KEY,
    ROLLOUT_INDEX_KEY,
    ATTEMPT_INDEX_KEY,
    ROLLOUT_ID_KEY,
    AGENT_REF_KEY,
    SKILLS_REF_KEY,
)
"""What a result repeats of its row, whatever the verifier answered."""


class Runner:
    """Runs tasks through the agents that their rows name."""

    def __init__(self, client: ServerClient, *, rollout_timeout_s: float) -> None:
        self._client = client
        self._timeouts = Timeouts(read_s=rollout_timeout_s, total_s=rollout_timeout_s)

    async def run(self, row: dict[str, Any]) -> Record:
        """Run one task to its end; this never raises, short of being cancelled."""
        try:
            result = await self._answer(row)
        except RolloutError as error:
            return failed(row, error.failure_class, str(error), error.server)
        except Exception as error:
            # Whatever went wrong, it went wrong for one rollout.
            logger.exception(
                "repeat %s of task %s failed", row.get(ROLLOUT_INDEX_KEY), row.get(TASK_INDEX_KEY), exc_info=error
            )
            return failed(row, AgentFailed.failure_class, repr(error), None)
        return _record(row, result)

    async def _answer(self, row: dict[str, Any]) -> dict[str, Any]:
        agent = str(row[AGENT_REF_KEY]["name"])
        try:
            with rollout_context(rollout_id_of_row(row)):
                reply = await self._client.post(
                    agent, "/run", data=orjson.dumps(row), headers=JSON, timeouts=self._timeouts
                )
        except ReplyTimedOut as error:
            limit = f"the rollout took longer than rollout_timeout_s={self._timeouts.total_s:g}"
            raise RolloutTimedOut(f"{agent}: {limit}", server=agent) from error
        except ServerCallError as error:
            raise AgentFailed(str(error), server=agent) from error
        body = await reply.read()
        if not reply.ok:
            raise failure_of_reply(reply.status, body, server=agent, during="/run", otherwise=AgentFailed)
        try:
            result = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise AgentFailed(
                f"{agent}: /run answered something that is not JSON ({error.msg}): {readable(body, 200)}", server=agent
            ) from error
        if not isinstance(result, dict):
            raise AgentFailed(f"{agent}: /run answered a {type(result).__name__}, not an object", server=agent)
        return result


def _record(row: dict[str, Any], result: dict[str, Any]) -> Record:
    result |= {key: row[key] for key in CARRIED_KEYS if key in row}
    if result.get(NO_PERSIST_KEY):
        return Record(Outcome.UNRESOLVED, result)
    agent = row[AGENT_REF_KEY]["name"]
    if cause := result.get(FAILURE_CLASS_KEY):
        return Record(Outcome.FAILED, {**row, FAILURE_SERVER_KEY: agent, **result}, cause=str(cause))
    reward = result.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not math.isfinite(reward):
        message = f"{agent}: /run answered the reward {reward!r}, which is not a finite number"
        return failed(row, EnvironmentFailed.failure_class, message, agent)
    return Record(Outcome.SCORED, result, reward=float(reward))


def failed(row: dict[str, Any], cause: str, message: str, server: str | None) -> Record:
    """The record of a failure: the task with its cause, and no reward."""
    told = {FAILURE_CLASS_KEY: cause, FAILURE_MESSAGE_KEY: message, FAILURE_SERVER_KEY: server}
    return Record(Outcome.FAILED, {**row, **told}, cause=cause)

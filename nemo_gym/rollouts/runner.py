"""One task to one record, good or failed: nothing that happens to a rollout reaches the run."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from nemo_gym.config.observability import ModelCallCaptureConfig
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
    JUDGE_ERROR_KEY,
    NO_PERSIST_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    SKILLS_REF_KEY,
    TASK_INDEX_KEY,
    rollout_id_of_row,
)

if TYPE_CHECKING:
    from nemo_gym.capture.attachment import RolloutCapture

logger = logging.getLogger(__name__)

JSON = {"content-type": "application/json"}
REWARD_KEY = "reward"
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
        self._capture = _capture_of(client)

    async def run(self, row: dict[str, Any]) -> Record:
        """Run one task to its end; this never raises, short of being cancelled."""
        if self._capture is None:
            return await self._ended(row)
        captured = await asyncio.to_thread(self._capture, row)
        record = await self._ended(row)
        await asyncio.to_thread(captured.attach, record.row)
        return record

    async def result_of(self, row: dict[str, Any]) -> dict[str, Any]:
        """What the agent answers for a row, with the row's own keys; raises the `RolloutError` of a failure."""
        if self._capture is None:
            return await self._result(row)
        captured = await asyncio.to_thread(self._capture, row)
        result = await self._result(row)
        await asyncio.to_thread(captured.attach, result)
        return result

    async def _ended(self, row: dict[str, Any]) -> Record:
        try:
            result = await self._result(row)
        except RolloutError as error:
            return failed(row, error.failure_class, str(error), error.server)
        except Exception as error:
            # Whatever went wrong, it went wrong for one rollout.
            logger.exception(
                "repeat %s of task %s failed", row.get(ROLLOUT_INDEX_KEY), row.get(TASK_INDEX_KEY), exc_info=error
            )
            return failed(row, AgentFailed.failure_class, repr(error), None)
        return _record(row, result)

    async def _result(self, row: dict[str, Any]) -> dict[str, Any]:
        result = await self._answer(row)
        return result | {key: row[key] for key in CARRIED_KEYS if key in row}

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


def _capture_of(client: ServerClient) -> Callable[[dict[str, Any]], RolloutCapture] | None:
    """Begins the record of a rollout; None where the run's servers record nothing."""
    folder = ModelCallCaptureConfig.of(client.global_config_dict).store_dir
    if folder is None:
        return None
    # Imported here: a run that records nothing does not pay for it.
    from nemo_gym.capture.attachment import RolloutCapture
    from nemo_gym.capture.store import CaptureStore

    return partial(RolloutCapture, CaptureStore(folder))


def _record(row: dict[str, Any], result: dict[str, Any]) -> Record:
    if result.get(NO_PERSIST_KEY):
        return Record(Outcome.UNRESOLVED, result)
    agent = row[AGENT_REF_KEY]["name"]
    if cause := result.get(FAILURE_CLASS_KEY):
        told = {FAILURE_SERVER_KEY: agent}
        if JUDGE_ERROR_KEY in result:
            told[FAILURE_MESSAGE_KEY] = result[JUDGE_ERROR_KEY]
        # A reward stands beside the cause where a published server failed; no one earned it.
        unearned = {name: value for name, value in result.items() if name != REWARD_KEY}
        return Record(Outcome.FAILED, {**row, **told, **unearned}, cause=str(cause))
    reward = result.get(REWARD_KEY)
    if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not math.isfinite(reward):
        message = f"{agent}: /run answered the reward {reward!r}, which is not a finite number"
        return failed(row, EnvironmentFailed.failure_class, message, agent)
    return Record(Outcome.SCORED, result, reward=float(reward))


def failed(row: dict[str, Any], cause: str, message: str, server: str | None) -> Record:
    """The record of a failure: the task with its cause, and no reward."""
    told = {FAILURE_CLASS_KEY: cause, FAILURE_MESSAGE_KEY: message, FAILURE_SERVER_KEY: server}
    return Record(Outcome.FAILED, {**row, **told}, cause=cause)

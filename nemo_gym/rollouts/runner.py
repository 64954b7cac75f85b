"""Run one task and return one record, scored or failed, so that an error of one rollout never stops the run."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import failure_of_call, failure_of_reply
from nemo_gym.config.observability import ModelCallCaptureConfig
from nemo_gym.context.deadline import deadline_in
from nemo_gym.context.rollout_id import rollout_context
from nemo_gym.errors import (
    FAILURES,
    AgentFailed,
    EnvironmentFailed,
    InvalidTask,
    Overloaded,
    RolloutError,
    RolloutTimedOut,
    ServerCallError,
)
from nemo_gym.http.external import seconds_of_retry_after
from nemo_gym.http.reply import Reply, ReplyTimedOut, Timeouts, readable
from nemo_gym.jsonl import dump_json
from nemo_gym.opaque import loads_opaque
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.tasks import KIND_KEY, REASON_KEY
from nemo_gym.schemas.rollout import (
    AGENT_REF_KEY,
    ATTEMPT_INDEX_KEY,
    FAILURE_CLASS_KEY,
    FAILURE_MESSAGE_KEY,
    FAILURE_RETRYABLE_KEY,
    FAILURE_SERVER_KEY,
    FAILURE_TIER_KEY,
    JUDGE_ERROR_KEY,
    NO_PERSIST_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    SKILLS_REF_KEY,
    TASK_INDEX_KEY,
    TERMINAL_KEY,
    rollout_id_of_row,
)

if TYPE_CHECKING:
    from nemo_gym.capture.attachment import RolloutCapture

logger = logging.getLogger(__name__)

Loads = Callable[[bytes], Any]
"""A JSON parser. `loads_opaque` is enough if the result is only written again."""

JSON = {"content-type": "application/json"}
REWARD_KEY = "reward"
MASK_KEY = "mask_sample"
INSTANCE_CONFIG_KEY = "instance_config"
CARRIED_KEYS = (
    TASK_INDEX_KEY,
    ROLLOUT_INDEX_KEY,
    ATTEMPT_INDEX_KEY,
    ROLLOUT_ID_KEY,
    AGENT_REF_KEY,
    SKILLS_REF_KEY,
)
"""Keys that every result copies from its row, overriding the verifier's values."""
FAILURE_OF_STATUS: dict[int, type[RolloutError]] = {422: InvalidTask, 429: Overloaded, 503: Overloaded}
"""The failure for an error status without details. Any other status means `Runner.FAILURE`."""


class Runner:
    """A runner of tasks through the agents that their rows name, until the timeout or the caller's deadline."""

    PATH: ClassVar[str] = "/run"
    FAILURE: ClassVar[type[RolloutError]] = AgentFailed
    """The default failure for an error reply without details."""

    def __init__(self, client: ServerClient, *, rollout_timeout_s: float, loads: Loads = loads_opaque) -> None:
        self._client = client
        self._timeout_s = rollout_timeout_s
        self._capture = _capture_of(client)
        self._loads = loads if self._capture is None else orjson.loads

    async def run(self, row: dict[str, Any]) -> Record:
        """Run one task to its end. Never raises, except when cancelled."""
        if self._capture is None:
            return await self._ended(row)
        captured = await asyncio.to_thread(self._capture, row)
        record = await self._ended(row)
        await asyncio.to_thread(captured.attach, record.row)
        return record

    def server_of(self, row: dict[str, Any]) -> str:
        """Return the server to which a row is sent."""
        return str(row[AGENT_REF_KEY]["name"])

    async def _ended(self, row: dict[str, Any]) -> Record:
        try:
            result = await self._answer(row)
        except RolloutError as error:
            return failed(row, error)
        except Exception as error:
            # An unexpected error must fail only this rollout, not the run.
            logger.exception(
                "repeat %s of task %s failed", row.get(ROLLOUT_INDEX_KEY), row.get(TASK_INDEX_KEY), exc_info=error
            )
            return failed(row, self.FAILURE(repr(error)))
        return _record(row, result, self.server_of(row), self.PATH)

    async def _answer(self, row: dict[str, Any]) -> dict[str, Any]:
        server = self.server_of(row)
        reply = await self._reply(server, row)
        body = await reply.read()
        if not reply.ok:
            otherwise = FAILURE_OF_STATUS.get(reply.status, self.FAILURE)
            failure = failure_of_reply(reply.status, body, server=server, during=self.PATH, otherwise=otherwise)
            failure.retry_after_s = seconds_of_retry_after(reply.headers.get("retry-after"))
            raise failure
        try:
            result = self._loads(body)
        except orjson.JSONDecodeError as error:
            raise self.FAILURE(
                f"{server}: the reply of {self.PATH} is not valid JSON ({error.msg}): {readable(body, 200)}",
                server=server,
            ) from error
        if not isinstance(result, dict):
            raise self.FAILURE(
                f"{server}: {self.PATH} returned a {type(result).__name__}, not an object", server=server
            )
        return _with_mirrored_mask(result) | {key: row[key] for key in CARRIED_KEYS if key in row}

    async def _reply(self, server: str, row: dict[str, Any]) -> Reply:
        try:
            rollout_id = rollout_id_of_row(row)
        except ValueError as error:
            raise InvalidTask(str(error)) from error
        timeouts = Timeouts(read_s=self._timeout_s, total_s=self._timeout_s)
        try:
            with rollout_context(rollout_id), deadline_in(self._timeout_s):
                return await self._client.post(server, self.PATH, data=dump_json(row), headers=JSON, timeouts=timeouts)
        except (ReplyTimedOut, RolloutTimedOut) as error:
            limit = f"the rollout took longer than rollout_timeout_s={self._timeout_s:g}"
            raise RolloutTimedOut(f"{server}: {limit}", server=server) from error
        except ServerCallError as error:
            raise failure_of_call(error, server=server, otherwise=self.FAILURE) from error


def _capture_of(client: ServerClient) -> Callable[[dict[str, Any]], RolloutCapture] | None:
    """Return a function that starts the capture of a rollout, None if the run does not capture model calls."""
    folder = ModelCallCaptureConfig.of(client.global_config_dict).store_dir
    if folder is None:
        return None
    # Imported here to spare runs without capture the cost.
    from nemo_gym.capture.attachment import RolloutCapture
    from nemo_gym.capture.store import CaptureStore

    return partial(RolloutCapture, CaptureStore(folder))


def _with_mirrored_mask(result: dict[str, Any]) -> dict[str, Any]:
    # NeMo RL reads the mark from `instance_config`. A row may use this name for a field of another type.
    config = result.get(INSTANCE_CONFIG_KEY) or {}
    if result.get(MASK_KEY) is not True or not isinstance(config, dict):
        return result
    marks = {key: result[key] for key in (MASK_KEY, KIND_KEY, REASON_KEY) if key in result}
    return {**result, INSTANCE_CONFIG_KEY: {**config, **marks}}


def _record(row: dict[str, Any], result: dict[str, Any], server: str, path: str) -> Record:
    if result.get(NO_PERSIST_KEY):
        return Record(Outcome.UNRESOLVED, result)
    if result.get(FAILURE_CLASS_KEY):
        return _failed_by_answer(row, result, server, path)
    reward = result.get(REWARD_KEY)
    if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not math.isfinite(reward):
        message = f"{server}: {path} returned the reward {reward!r}, which is not a finite number"
        return failed(row, EnvironmentFailed(message, server=server))
    return Record(Outcome.SCORED, result, reward=float(reward))


def _failed_by_answer(row: dict[str, Any], result: dict[str, Any], server: str, path: str) -> Record:
    """Return the record of a reply that reports a failure. Its own fields override the defaults of its class."""
    cause = str(result[FAILURE_CLASS_KEY])
    kind = FAILURES.get(cause, AgentFailed)
    message = result.get(FAILURE_MESSAGE_KEY) or result.get(JUDGE_ERROR_KEY) or f"{server}: {path} returned '{cause}'"
    may_retry = bool(result.get(FAILURE_RETRYABLE_KEY, kind.may_retry)) and not result.get(TERMINAL_KEY)
    fields = _failure_fields(row, kind(str(message), server=server), cause)
    # Published servers add a reward to a failure, which must not be taken for a score.
    unrewarded = {name: value for name, value in result.items() if name != REWARD_KEY}
    failed_row = {**row, **fields, **unrewarded, FAILURE_RETRYABLE_KEY: may_retry}
    return Record(Outcome.FAILED, failed_row, cause=cause, may_retry=may_retry)


def failed(row: dict[str, Any], error: RolloutError) -> Record:
    """Return the record of a failure: the task with its cause, without a reward."""
    cause = error.failure_class
    return Record(
        Outcome.FAILED,
        {**row, **_failure_fields(row, error, cause)},
        cause=cause,
        may_retry=error.may_retry,
        retry_after_s=error.retry_after_s,
    )


def _failure_fields(row: dict[str, Any], error: RolloutError, cause: str) -> dict[str, Any]:
    return {
        ATTEMPT_INDEX_KEY: row.get(ATTEMPT_INDEX_KEY) or 0,
        FAILURE_CLASS_KEY: cause,
        FAILURE_MESSAGE_KEY: str(error),
        FAILURE_SERVER_KEY: error.server,
        FAILURE_TIER_KEY: error.tier,
        FAILURE_RETRYABLE_KEY: error.may_retry,
        KIND_KEY: cause,
        REASON_KEY: str(error),
    }

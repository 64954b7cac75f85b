"""Run one task, with retries, and return one record, scored or failed: an error of one rollout never stops the run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import failure_of_call, failure_of_reply
from nemo_gym.calls.results import Loads, result_of_reply
from nemo_gym.context.deadline import deadline_in, time_left_s
from nemo_gym.context.rollout_id import rollout_context
from nemo_gym.context.spent import Spent
from nemo_gym.data.media import with_media
from nemo_gym.errors import (
    FAILURES,
    AgentFailed,
    DataError,
    EnvironmentFailed,
    InvalidTask,
    Overloaded,
    RolloutError,
    RolloutTimedOut,
    ServerCallError,
    ServerLost,
)
from nemo_gym.http.reply import Reply, ReplyTimedOut, Timeouts
from nemo_gym.http.retries import Backoff, seconds_of_retry_after
from nemo_gym.jsonl import JsonObject, dump_json, loads_exact
from nemo_gym.opaque import loads_opaque, plain
from nemo_gym.rollouts.job import AttemptSettings
from nemo_gym.rollouts.outcome import Outcome, Record, Timing
from nemo_gym.rollouts.recorded_tokens import RecordedTokens
from nemo_gym.schemas.row import MEDIA_DIR_KEY, SECONDS_KEY, UNGRADED, Row

if TYPE_CHECKING:
    from nemo_gym.capture.attachment import RolloutCapture

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 60.0
GROWTH = 4.0
JSON = {"content-type": "application/json"}
FAILURE_OF_STATUS: dict[int, type[RolloutError]] = {422: InvalidTask, 429: Overloaded, 503: Overloaded}
"""The failure for an HTTP error status if the reply has no details. For other statuses, it is `Runner.FAILURE`."""


class Runner:
    """A runner that sends each row to the agent named in the row, with a timeout, and returns the outcome."""

    PATH: ClassVar[str] = "/run"
    FAILURE: ClassVar[type[RolloutError]] = AgentFailed
    """The default failure for an error reply without details."""

    def __init__(
        self,
        client: ServerClient,
        *,
        rollout_timeout_s: float,
        loads: Loads = loads_opaque,
        tokens: RecordedTokens | None = None,
    ) -> None:
        """`tokens` adds the recorded tokens to the results, if the run records any."""
        self._client = client
        self._timeout_s = rollout_timeout_s
        self._capture = _capture_of(client)
        self._tokens = tokens
        self._loads = loads if self._capture is None else loads_exact

    async def run(self, row: Row) -> Record:
        """Run one task to its end. Raise only if the task is cancelled or too many rollouts lack recorded tokens."""
        if self._tokens is None:
            return await self._attempt(row)
        record = await self._tokens.run(row, self._attempt)
        return replace(record, row=Row(plain(record.row.fields))) if self._loads is loads_exact else record

    def _attempt(self, row: Row) -> Awaitable[Record]:
        return self._ended(row) if self._capture is None else self._observed(row, self._capture)

    async def _observed(self, row: Row, begin: Callable[[JsonObject], RolloutCapture]) -> Record:
        captured = await asyncio.to_thread(begin, row.fields)
        began_at = time.monotonic()
        record = await self._ended(row)
        # Add the duration only to captured results. In other runs, equal replies must give equal results.
        record.row.fields[SECONDS_KEY] = round(time.monotonic() - began_at, 3)
        await asyncio.to_thread(captured.attach, record.row.fields)
        return record

    def server_of(self, row: Row) -> str:
        return str(row.agent)

    async def _ended(self, row: Row) -> Record:
        began_at, began, spent = time.time(), time.monotonic(), Spent()
        try:
            result = await self._answer(row, spent)
        except RolloutError as error:
            record = failed(row, error)
        except Exception as error:
            # An unexpected error must fail only this rollout, not the run.
            logger.exception("repeat %s of task %s failed", row.repeat_index, row.task_index, exc_info=error)
            record = failed(row, self.FAILURE(repr(error)))
        else:
            record = self._record(row, result)
        phases = {phase: round(seconds, 3) for phase, seconds in spent.seconds.items()}
        record.timing = Timing(began_at, round(time.monotonic() - began, 3), phases, spent.tools)
        return record

    def _record(self, row: Row, result: Row) -> Record:
        return record_of(row, result, self.server_of(row), self.PATH)

    async def _answer(self, row: Row, spent: Spent) -> Row:
        server = self.server_of(row)
        reply = await self._reply(server, row)
        spent.add_headers(hooks().headers(reply))
        body = await reply.read()
        if not reply.ok:
            otherwise = FAILURE_OF_STATUS.get(reply.status, self.FAILURE)
            failure = failure_of_reply(reply.status, body, server=server, during=self.PATH, otherwise=otherwise)
            failure.retry_after_s = seconds_of_retry_after(reply.headers.get("retry-after"))
            raise failure
        return result_of_reply(body, row, server=server, during=self.PATH, otherwise=self.FAILURE, loads=self._loads)

    async def _reply(self, server: str, row: Row) -> Reply:
        try:
            rollout_id = row.rollout_id
        except ValueError as error:
            raise InvalidTask(str(error)) from error
        timeouts = Timeouts(read_s=self._timeout_s, total_s=self._timeout_s)
        try:
            with rollout_context(rollout_id), deadline_in(self._timeout_s):
                # Serialize the row for each attempt. Otherwise, it would be in memory twice during its rollout.
                data: Callable[[], bytes] | bytes = partial(dump_json, row.fields)
                if MEDIA_DIR_KEY in row.fields:
                    data = await asyncio.to_thread(_with_media, row)
                return await self._client.post(server, self.PATH, data=data, headers=JSON, timeouts=timeouts)
        except (ReplyTimedOut, RolloutTimedOut) as error:
            limit = f"the rollout took longer than rollout_timeout_s={self._timeout_s:g}"
            raise RolloutTimedOut(f"{server}: {limit} ({error})", server=server) from error
        except ServerCallError as error:
            raise failure_of_call(error, server=server, otherwise=self.FAILURE) from error


class AttemptLimits(NamedTuple):
    """The limits on the number, duration and pace of attempts."""

    most: int
    """The total number of attempts, including those of earlier runs."""
    timeout_s: float
    """The time limit for all attempts of this run, including the pauses between them."""
    backoff: Backoff

    @classmethod
    def of(cls, settings: AttemptSettings, most: int) -> AttemptLimits:
        return cls(most, settings.rollout_timeout_s, Backoff(settings.retry_pause_s, GROWTH, LONGEST_PAUSE_S))


async def run_to_its_end(
    runner: Runner,
    row: Row,
    limits: AttemptLimits,
    *,
    on_repeat: Callable[[Record], None],
    on_lost: Callable[[], Awaitable[None]] | None = None,
) -> Record:
    """Run a task with retries. `on_repeat` receives each failed attempt that is followed by a retry.

    `on_lost` is awaited after an attempt in which a server was lost, before the attempt is counted.
    """
    attempt = row.attempt
    number = 0
    with deadline_in(limits.timeout_s):
        while True:
            record = await runner.run(row)
            if on_lost is not None and record.cause == ServerLost.failure_class:
                await on_lost()
            attempt, number = attempt + 1, number + 1
            if not record.may_retry or attempt >= limits.most:
                return record
            pause_s = limits.backoff.pause_s(number, record.retry_after_s)
            left_s = time_left_s()
            if left_s is not None and left_s <= pause_s:
                return record
            on_repeat(record)
            # Give each attempt its own rollout id, so that servers and files can distinguish the attempts.
            row = row.of_attempt(attempt)
            await asyncio.sleep(pause_s)


def _capture_of(client: ServerClient) -> Callable[[JsonObject], RolloutCapture] | None:
    """Return a function that starts the capture of a rollout, or None if the run does not capture model calls."""
    folder = client.address_book.settings.capture_dir
    if folder is None:
        return None
    # Import these modules here, because only runs with capture need them.
    from nemo_gym.capture.attachment import RolloutCapture
    from nemo_gym.capture.store import CaptureStore

    return partial(RolloutCapture, CaptureStore(folder))


def _with_media(row: Row) -> bytes:
    try:
        return dump_json(with_media(row.fields))
    except DataError as error:
        raise InvalidTask(str(error)) from error


def record_of(row: Row, result: Row, server: str, path: str) -> Record:
    """Return the record for a reply to `path` with the result of a row."""
    if result.is_discarded:
        return Record(Outcome.UNRESOLVED, result)
    if result.failure_class == UNGRADED:
        marks = {*result.failure_fields, "reward"}
        ungraded = {key: value for key, value in result.fields.items() if key not in marks}
        return Record(Outcome.UNRESOLVED, Row(ungraded), is_ungraded=True)
    if result.failure_class:
        return _failed_by_answer(row, result, result.failure_class, server, path)
    reward = result.reward
    if reward is None:
        given = result.fields.get("reward")
        message = f"{server}: {path} returned the reward {given!r}, which is not a finite number"
        return failed(row, EnvironmentFailed(message, server=server))
    return Record(Outcome.SCORED, result, reward=reward)


def _failed_by_answer(row: Row, result: Row, cause: str, server: str, path: str) -> Record:
    """Return the record for a failure reply. The reply's fields override the defaults of the failure class."""
    message = result.failure_message or f"{server}: {path} returned '{cause}'"
    error = FAILURES.get(cause, AgentFailed)(message, server=server)
    may_retry = result.may_retry(error.may_retry)
    # Remove the reward that older servers add to a failure, because it must not be taken for a score.
    unrewarded = {name: value for name, value in result.fields.items() if name != "reward"}
    failed_row = _with_failure(row, error, cause).with_fields(unrewarded).with_may_retry(may_retry)
    return Record(Outcome.FAILED, failed_row, cause=cause, may_retry=may_retry)


def failed(row: Row, error: RolloutError) -> Record:
    """Return the record of a failure: the row with the failure's cause and without a reward."""
    cause = error.failure_class
    failed_row = _with_failure(row, error, cause)
    return Record(
        Outcome.FAILED, failed_row, cause=cause, may_retry=error.may_retry, retry_after_s=error.retry_after_s
    )


def _with_failure(row: Row, error: RolloutError, cause: str) -> Row:
    return row.with_failure(
        cause, str(error), server=error.server, tier=error.tier, may_retry=error.may_retry, log_file=error.log_file,
        conversation=error.conversation,
    )  # fmt: skip

"""Middleware that records the calls to a model server: request, answer and timing, and the sampled tokens."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.exchange import (
    DIALECTS,
    Dialect,
    ErrorCategory,
    Exchange,
    category_of_error,
    category_of_status,
)
from nemo_gym.capture.store import CaptureStore
from nemo_gym.capture.streams import assembled
from nemo_gym.capture.tokens.entry import TokenSink
from nemo_gym.capture.tokens.recording import TokenRecording
from nemo_gym.config.settings import ModelServerRef
from nemo_gym.context.rollout_id import move_rollout_id, wants_tokens
from nemo_gym.schemas.rollout import MODEL_CALL_HEADER, ROLLOUT_HEADER
from nemo_gym.schemas.row import ROLLOUT_ID_PATTERN

logger = logging.getLogger(__name__)

EVENT_STREAM = b"text/event-stream"


class CaptureMiddleware:
    """Middleware that records the model calls of rollouts and removes the `/ng-rollout/<id>` prefix of paths.

    A call's rollout is named by that prefix or by a header. With a `store`, each call is recorded. With a `sink`, the
    tokens of the calls whose prefix asks for them are recorded, under the same id.
    """

    def __init__(
        self,
        app: ASGIApp,
        store: CaptureStore | None,
        model_ref: ModelServerRef | None = None,
        sink: TokenSink | None = None,
    ) -> None:
        self.app = app
        self.store = store
        self.model_ref = model_ref
        self.sink = sink

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            rollout_id = move_rollout_id(scope) or _id_of_header(scope)
            dialect = DIALECTS.get(scope["path"])
            if rollout_id is not None and dialect is not None and scope["method"] == "POST":
                app = self._recorded(rollout_id, dialect, asks_for_tokens=wants_tokens(scope))
        await app(scope, receive, send)

    def _recorded(self, rollout_id: str, dialect: Dialect, *, asks_for_tokens: bool) -> ASGIApp:
        """Return the app with the recordings of one call around it."""
        app, model_call_id = self.app, f"call_{uuid4().hex}"
        if self.sink is not None and asks_for_tokens:
            app = partial(TokenRecording(self.sink, rollout_id, model_call_id).watch, app)
        if self.store is not None:
            began_at = round(time.time(), 6)
            record = Exchange(
                model_call_id=model_call_id, dialect=dialect, model_ref=self.model_ref, started_at=began_at
            )
            app = partial(_Call(self.store, rollout_id, record).watch, app)
        return app


def _id_of_header(scope: Scope) -> str | None:
    values = (value for name, value in scope["headers"] if name == ROLLOUT_HEADER.encode())
    text: str = next(values, b"").decode("latin-1")
    return text if ROLLOUT_ID_PATTERN.fullmatch(text) else None


class _Call:
    """The recording of one model call, from its request to the end of its answer.

    An answer ends only after its record is on disk, so that a caller who has the answer finds the record. Recording
    errors never reach the caller. They mark the rollout's record as incomplete.
    """

    def __init__(self, store: CaptureStore, rollout_id: str, record: Exchange) -> None:
        self.store = store
        self.rollout_id = rollout_id
        self.record = record
        self._began = time.perf_counter()
        self._request_body: list[bytes] = []
        self._answer_body: list[bytes] = []
        self._is_stream = False
        self._is_recorded = False

    async def watch(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app and record the messages in both directions."""

        async def recorded_receive() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self._request_body.append(message.get("body", b""))
            return message

        async def recorded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._begin_answer(message)
            elif message["type"] == "http.response.body":
                self._take(message.get("body", b""))
                if not message.get("more_body", False):
                    assert self.record.status_code is not None
                    await self._write(category_of_status(self.record.status_code))
            await send(message)

        try:
            await app(scope, recorded_receive, recorded_send)
        except Exception as error:
            self.record.error_category = category_of_error(error)
            raise
        finally:
            # The answer is incomplete, because the handler failed or the caller disconnected.
            if not self._is_recorded:
                cut_off = ErrorCategory.STREAM_TRUNCATED if self._is_stream else ErrorCategory.INCOMPLETE
                await self._write(self.record.error_category or cut_off)

    def _begin_answer(self, message: Message) -> None:
        headers = list(message.get("headers", []))
        self.record.status_code = message["status"]
        self._is_stream = any(
            name.lower() == b"content-type" and value.startswith(EVENT_STREAM) for name, value in headers
        )
        message["headers"] = [*headers, (MODEL_CALL_HEADER.encode(), self.record.model_call_id.encode())]

    def _take(self, chunk: bytes) -> None:
        if chunk and self._is_stream and self.record.latency_ttft_ms is None:
            self.record.latency_ttft_ms = self._elapsed_ms()
        self._answer_body.append(chunk)

    def _elapsed_ms(self) -> float:
        return round((time.perf_counter() - self._began) * 1000, 3)

    async def _write(self, error_category: str | None) -> None:
        self._is_recorded = True
        self.record.error_category = error_category
        self.record.latency_ms = self._elapsed_ms()
        self.record.completed_at = round(self.record.started_at + self.record.latency_ms / 1000, 6)
        # Shield the write, because a caller that disconnects cancels this task, but the record must still be written.
        await asyncio.shield(asyncio.to_thread(self._write_now))

    def _write_now(self) -> None:
        try:
            self._read_bodies()
            self.store.record(self.rollout_id, self.record.line())
        except Exception:
            # Do not raise the error, because recording must never fail a rollout.
            logger.exception("rollout %s: a model call could not be recorded", self.rollout_id)
            try:
                self.store.mark_incomplete(self.rollout_id, f"{self.record.model_call_id} could not be written")
            except OSError:
                logger.warning("rollout %s: its record could not be marked as incomplete", self.rollout_id)

    def _read_bodies(self) -> None:
        record, answer, problem = self.record, b"".join(self._answer_body), None
        record.request, record.request_raw = _parsed(b"".join(self._request_body))
        if self._is_stream:
            record.response, problem = assembled(record.dialect, answer)
            record.response_raw = answer.decode("utf-8", "replace") if problem else None
        else:
            record.response, record.response_raw = _parsed(answer)
        if problem is None and (record.request_raw, record.response_raw) != (None, None):
            problem = ErrorCategory.CAPTURE_PARSE_ERROR
        record.error_category = record.error_category or problem


class _Body(NamedTuple):
    """A request or an answer as JSON, or as text if it is not JSON."""

    json: object = None
    text: str | None = None


def _parsed(body: bytes) -> _Body:
    try:
        return _Body(orjson.loads(body) if body else None)
    except orjson.JSONDecodeError:
        return _Body(text=body.decode("utf-8", "replace"))

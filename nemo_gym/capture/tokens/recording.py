"""Record the tokens of model calls in a model server. The tokens are stored before the answer is passed on."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib import import_module
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.tokens.answers import SampledAnswer, sampled_answer
from nemo_gym.capture.tokens.entry import RolloutFrozen, TokenEntry, TokenSink
from nemo_gym.capture.tokens.file_store import FileTokenStore
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.context.answer_recorder import recorder
from nemo_gym.errors import ConfigError, ModelFailed

logger = logging.getLogger(__name__)

_ERROR_STATUS = 400
UNUSABLE = "the tokens of a call cannot be used"
OTHER_ROUTE = "the model server overrides nemo_gym's routes, so its tokens cannot be recorded"
NO_TOKENS = "a call has no token ids: serve the model with return_token_id_information: true"


class TokenRecording:
    """The recording of the tokens of one model call."""

    def __init__(self, sink: TokenSink, rollout_id: str, model_call_id: str) -> None:
        self._sink = sink
        self._rollout_id = rollout_id
        self._model_call_id = model_call_id
        # Leave the check to `FileTokenStore`, because it skips the part of a prompt that it has checked before.
        self._checks_itself = isinstance(sink, FileTokenStore)
        self._is_done = False

    async def watch(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app. If it answers without calling the recorder, store a gap before the answer begins."""

        async def send_recorded(message: Message) -> None:
            is_answer = message["type"] == "http.response.start" and message["status"] < _ERROR_STATUS
            if is_answer and not self._is_done:
                await self._mark_incomplete(OTHER_ROUTE)
            await send(message)

        token = recorder.set(self.record)
        try:
            await app(scope, receive, send_recorded)
        finally:
            recorder.reset(token)

    async def record(self, answer: object) -> None:
        """Store the tokens that the policy sampled, or a gap if the tokens are missing or unusable.

        `answer` is the return value of the model server's method, or its error, for which nothing is stored. Raise
        `ModelFailed` if not even a gap can be stored.
        """
        self._is_done = True
        try:
            sampled = sampled_answer(answer)
            if sampled is None or (not sampled.tokens and sampled.is_empty):
                return
            entry = self._entry_of(sampled) if sampled.tokens else None
            if entry is not None and not self._checks_itself:
                entry.check()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            await self._mark_incomplete(f"{UNUSABLE}: {error}")
            return
        if entry is None:
            await self._mark_incomplete(NO_TOKENS)
        elif self._checks_itself:
            # Store without a thread, because writing a line to the system's cache is faster than switching threads.
            self._put(entry)
        else:
            # Shield the write, because a caller that hangs up cancels this task, but the entry must still be stored.
            await asyncio.shield(asyncio.to_thread(self._put, entry))

    async def _mark_incomplete(self, reason: str) -> None:
        logger.warning("rollout %s: %s", self._rollout_id, reason)
        await asyncio.shield(asyncio.to_thread(self._mark, reason))

    def _entry_of(self, sampled: SampledAnswer) -> TokenEntry:
        tokens = sampled.tokens
        return TokenEntry(
            rollout_id=self._rollout_id,
            model_call_id=self._model_call_id,
            prompt_token_ids=Numbers.of(tokens["prompt_token_ids"]),
            generation_token_ids=Numbers.of(tokens["generation_token_ids"]),
            generation_log_probs=Numbers.of(tokens["generation_log_probs"]),
            routed_experts=tokens.get("routed_experts"),
            output_items=sampled.items,
            token_item_index=sampled.token_item,
            model=sampled.model,
            created_at=round(time.time(), 6),
        )

    def _put(self, entry: TokenEntry) -> None:
        try:
            self._sink.put(entry)
        except RolloutFrozen:
            raise
        except ValueError as error:
            logger.warning("rollout %s: %s: %s", self._rollout_id, UNUSABLE, error)
            self._mark(f"{UNUSABLE}: {error}")
        except Exception as error:
            # Catch every error, because the sink may be a user's class, which may raise anything.
            logger.exception("rollout %s: the tokens of a call could not be stored", self._rollout_id)
            self._mark(f"the tokens of a call could not be stored: {error!r}")

    def _mark(self, reason: str) -> None:
        try:
            self._sink.mark_incomplete(self._rollout_id, reason)
        except RolloutFrozen:
            raise
        except Exception as error:
            # Fail the call. Otherwise the rollout would be trained on as if its record were complete.
            raise ModelFailed(f"token_id_capture: {reason}. This gap could not be recorded: {error!r}") from error


def open_store(config: TokenCaptureConfig) -> Any:
    """Return the configured sink. Raise `ConfigError` if its class cannot be used."""
    if config.sink is None:
        return FileTokenStore(str(config.dir))
    module, name = config.sink_class
    try:
        return getattr(import_module(module), name)(**config.sink_kwargs)
    except (ImportError, AttributeError, TypeError, ValueError, OSError) as error:
        raise ConfigError(f"token_id_capture.sink: '{config.sink}' cannot be used: {error!r}") from error

"""Record the tokens of model calls in a model server. The tokens are stored before the answer is passed on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple
from uuid import uuid4

from pydantic import BaseModel
from starlette.responses import Response as HttpResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.tokens.entry import RolloutFrozen, TokenEntry, TokenSink
from nemo_gym.capture.tokens.file_store import FileTokenStore
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.context.answer_recorder import recorder
from nemo_gym.dialects.chat_answers import items_of_message
from nemo_gym.errors import ConfigError, ModelFailed
from nemo_gym.opaque import loads_opaque
from nemo_gym.schemas.shapes import Item
from nemo_gym.schemas.tokens import (
    OPTIONAL_TOKEN_METADATA_FIELDS,
    REQUIRED_TOKEN_METADATA_FIELDS,
    TOKEN_METADATA_FIELDS,
    without_tokens,
)

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
        self._began_at = round(time.time(), 6)
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
        numbers: dict[str, Any] = {name: Numbers.of(tokens[name]) for name in REQUIRED_TOKEN_METADATA_FIELDS}
        numbers |= {name: tokens.get(name) for name in OPTIONAL_TOKEN_METADATA_FIELDS}
        return TokenEntry(
            rollout_id=self._rollout_id,
            model_call_id=self._model_call_id,
            **numbers,
            output_items=sampled.items,
            token_item_index=sampled.token_item,
            model=sampled.model,
            created_at=round(time.time(), 6),
            began_at=self._began_at,
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


class SampledAnswer(NamedTuple):
    """The output that the policy sampled in one call."""

    items: list[Item]
    """The output items without their tokens."""
    token_item: int
    """The index of the item that had the tokens."""
    tokens: Mapping[str, Any]
    """The token fields; empty if the answer has none."""
    model: str | None

    @property
    def is_empty(self) -> bool:
        """Whether the answer has no text, refusal or tool call, because it was cut off at once."""
        return not any(_is_said(item) for item in self.items)


def sampled_answer(answer: object) -> SampledAnswer | None:
    """Return the sampled output, or None if the answer is an error. Raise `ValueError` if its format is unknown."""
    fields = _fields_of(answer)
    if fields is None or fields.get("error"):
        return None
    model = fields.get("model")
    if "output" in fields:
        return _of_items(list(fields["output"]), model)
    choices = fields.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise ValueError("the answer is neither a response nor a completion with one choice")
    message = _plain(choices[0])["message"]
    items = _items_of(_plain(message))
    return SampledAnswer(items, len(items) - 1, _tokens_of(message), model)


def _fields_of(answer: object) -> Any:
    if isinstance(answer, Exception):
        return None
    if isinstance(answer, HttpResponse):
        return None if answer.status_code >= _ERROR_STATUS else _parsed(bytes(answer.body))
    if isinstance(answer, bytes):
        return _parsed(answer)
    return _plain(answer)


def _parsed(text: bytes) -> Any:
    return _plain(loads_opaque(text))


def _plain(value: object) -> Any:
    """Return the fields of a model or a mapping, without converting their values."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.model_extra or {})}
    if not isinstance(value, dict):
        raise ValueError(f"the answer is of type {type(value).__name__}, not an object")
    return value


def _of_items(items: list[Any], model: str | None) -> SampledAnswer:
    found = [(index, tokens) for index, item in enumerate(items) if (tokens := _tokens_of(item))]
    if len(found) > 1:
        raise ValueError("the answer has tokens in several items, but only one item may have them")
    index, tokens = found[0] if found else (len(items) - 1, {})
    return SampledAnswer([_without_tokens(item) for item in items], index, tokens, model)


def _tokens_of(item: object) -> Mapping[str, Any]:
    fields = _plain(item)
    tokens = {name: fields[name] for name in TOKEN_METADATA_FIELDS if fields.get(name) is not None}
    return tokens if any(name in tokens for name in REQUIRED_TOKEN_METADATA_FIELDS) else {}


def _is_said(item: Item) -> bool:
    if item.get("type") not in ("message", "reasoning"):
        return True
    parts = [part for given in (item.get("content"), item.get("summary")) for part in given or ()]
    return any(part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))


def _without_tokens(item: object) -> Any:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude=set(TOKEN_METADATA_FIELDS), exclude_none=True)
    return without_tokens(_plain(item))


def _items_of(message: Mapping[str, object]) -> list[Item]:
    plain: Any = {name: _dumped(value) for name, value in without_tokens(message).items()}
    items = items_of_message(plain, new_id=lambda kind: f"{kind}_{uuid4().hex}", keeps_tokens=False)
    return [_without_tokens(item) for item in items]


def _dumped(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_dumped(each) for each in value] if isinstance(value, list) else value

"""Read sampled tokens from the return value of a model server's method: a model, a dict, bytes or an HTTP response."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import uuid4

from pydantic import BaseModel
from starlette.responses import Response as HttpResponse

from nemo_gym.dialects.chat_answers import items_of_message
from nemo_gym.jsonl import JsonObject
from nemo_gym.opaque import loads_opaque
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS, TOKEN_METADATA_FIELDS, without_tokens

_ERROR_STATUS = 400


class SampledAnswer(NamedTuple):
    """The output that the policy sampled in one call."""

    items: list[JsonObject]
    """The output items without their tokens."""
    token_item: int
    """The index of the item that had the tokens."""
    tokens: JsonObject
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


def _fields_of(answer: object) -> JsonObject | None:
    if isinstance(answer, Exception):
        return None
    if isinstance(answer, HttpResponse):
        return None if answer.status_code >= _ERROR_STATUS else _parsed(bytes(answer.body))
    if isinstance(answer, bytes):
        return _parsed(answer)
    return _plain(answer)


def _parsed(text: bytes) -> JsonObject:
    return _plain(loads_opaque(text))


def _plain(value: object) -> JsonObject:
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


def _tokens_of(item: object) -> JsonObject:
    fields = _plain(item)
    tokens = {name: fields[name] for name in TOKEN_METADATA_FIELDS if fields.get(name) is not None}
    return tokens if any(name in tokens for name in REQUIRED_TOKEN_METADATA_FIELDS) else {}


def _is_said(item: JsonObject) -> bool:
    if item.get("type") not in ("message", "reasoning"):
        return True
    parts = [part for name in ("content", "summary") for part in item.get(name) or ()]
    return any(part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))


def _without_tokens(item: object) -> JsonObject:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude=set(TOKEN_METADATA_FIELDS), exclude_none=True)
    return without_tokens(_plain(item))


def _items_of(message: JsonObject) -> list[JsonObject]:
    plain = {name: _dumped(value) for name, value in without_tokens(message).items()}
    items = items_of_message(plain, new_id=lambda kind: f"{kind}_{uuid4().hex}", keeps_tokens=False)
    return [_without_tokens(item) for item in items]


def _dumped(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_dumped(each) for each in value] if isinstance(value, list) else value

"""The records of a rollout's captured model calls, and the sums over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ValidationError

from nemo_gym.capture.exchange import CallFields
from nemo_gym.capture.store import BEGINNING, CaptureStore, Extent
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.records.conversation import answer_of, calls_of, finish_reason_of, objects_in, reasoning_of
from nemo_gym.records.usage import usage_of
from nemo_gym.schemas.shapes import ANY_KEYS, AnswerJson, Item, RequestJson

PAYLOADS = frozenset({"request", "response", "request_raw", "response_raw"})
"""The fields with the contents of a call. By default, they are left out when calls are attached to a result row."""


class ModelCallRecord(CallFields):
    """One captured call to a model server, read from a line of a capture file."""

    call_index: int
    """The position of the call's line among the lines that were read from the file, counted from 0."""
    response_id: str | None = None
    """The `id` of the answer."""
    model: str | None = None
    """The name of the model in the answer, or else in the request."""
    response_status: str | None = None
    """The `status` of the answer."""
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    """The provider's own name of the finish reason, from routers such as OpenRouter that report it."""
    tokens_in: int | None = None
    """The number of tokens in the prompt, including cached ones. None if the answer does not report it."""
    tokens_out: int | None = None
    """The number of tokens in the answer."""
    tokens_reasoning: int | None = None
    """The part of `tokens_out` that was reasoning."""
    tokens_total: int | None = None
    request: Annotated[RequestJson, ANY_KEYS] | None = None
    response: Annotated[AnswerJson, ANY_KEYS] | None = None
    tool_calls: list[Annotated[Item, ANY_KEYS]] | None = None
    """The tool calls of the answer: `call_id`, `name` and `arguments`."""
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    """Whether the endpoint had a part of the request in its cache."""
    cached_tokens: int | None = None
    """The part of `tokens_in` that the endpoint had cached."""
    cache_creation_tokens: int | None = None
    """The part of `tokens_in` that the endpoint wrote to its cache."""
    latency_total_ms: float | None = None
    """Time to the end of the answer."""

    @classmethod
    def of(cls, call_index: int, exchange: Mapping[str, Any]) -> Self:
        """Convert a parsed line of a capture file. Raise `ValidationError` if a field has the wrong type."""
        request, request_raw = _payload(exchange, "request")
        response, response_raw = _payload(exchange, "response")
        answer: AnswerJson = response or AnswerJson()
        items, usage = list(answer_of(answer)), usage_of(answer.get("usage"))
        choice: JsonObject = next(iter(objects_in(answer.get("choices"))), {})
        named = (answer.get("model"), (request or {}).get("model"))
        return cls.model_validate(
            {
                **{name: exchange.get(name) for name in CallFields.model_fields},
                **usage._asdict(),
                "call_index": call_index,
                "response_id": _text(answer.get("id")),
                "model": next((name for name in named if isinstance(name, str)), None),
                "response_status": _text(answer.get("status")),
                "finish_reason": finish_reason_of(answer),
                "native_finish_reason": _text(choice.get("native_finish_reason")),
                "request": request,
                "response": response,
                "request_raw": request_raw,
                "response_raw": response_raw,
                "tool_calls": calls_of(items),
                "reasoning_content": reasoning_of(items),
                "cache_hit": None if usage.cached_tokens is None else usage.cached_tokens > 0,
                "latency_total_ms": exchange.get("latency_ms"),
            }
        )


def _payload(exchange: Mapping[str, Any], name: str) -> tuple[Any, str | None]:
    payload, raw = exchange.get(name), exchange.get(f"{name}_raw")
    if payload is None or isinstance(payload, dict):
        return payload, raw
    return None, raw or dump_json(payload).decode()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


class ModelCallMetrics(BaseModel):
    """Sums over the model calls of a rollout."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    cached_tokens: int | None = None
    latency_total_ms: float | None = None
    num_calls: int = 0
    """The number of calls, including failed ones."""

    @classmethod
    def over(cls, calls: Sequence[ModelCallRecord]) -> Self:
        """Return the sums over these calls, including failed ones. A sum is None if no call reports the value."""
        names = cls.model_fields.keys() - {"num_calls"}
        sums = {name: _sum(getattr(call, name) for call in calls) for name in names}
        return cls.model_validate({**sums, "num_calls": len(calls)})


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


class AvailableRecords(NamedTuple):
    """The captured calls of a rollout that can be read, and the number of damaged lines."""

    records: list[ModelCallRecord]
    damaged: int


def available_records(store: CaptureStore, rollout_id: str, after: Extent = BEGINNING) -> AvailableRecords:
    """Return a rollout's captured calls since `after`, in the order of the file, and the number of damaged lines."""
    exchanges, damaged = store.read_available(rollout_id, after)
    records = []
    for position, exchange in exchanges:
        try:
            records.append(ModelCallRecord.of(position, exchange))
        except ValidationError:
            damaged += 1
    return AvailableRecords(records, damaged)

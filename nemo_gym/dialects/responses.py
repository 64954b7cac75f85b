"""Bring responses of endpoints that differ a little into the standard form of the Responses API."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime

from pydantic import ValidationError

from nemo_gym.dialects.calls import unique_ids
from nemo_gym.dialects.chat import new_id
from nemo_gym.errors import DataError, ModelFailed
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.records.usage import are_known, standard_usage
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.shapes import Item
from nemo_gym.text import problems_in

COUNTS = ("input_tokens", "output_tokens", "total_tokens")
STATUSES = ("in_progress", "completed", "incomplete")
NEEDED = ("output", "usage", "id", "model", "created_at")
MOST_PROBLEMS = 5

logger = logging.getLogger(__name__)


@contextmanager
def reading(server: str) -> Iterator[None]:
    """Raise `ModelFailed` if a request or a reply in the block cannot be converted."""
    try:
        yield
    except ValidationError as error:
        problems = problems_in(error, MOST_PROBLEMS)
        raise ModelFailed(f"{server}: the endpoint's answer is invalid: {problems}", server=server) from error
    except DataError as error:
        raise ModelFailed(f"{server}: {error}", server=server) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # An endpoint may send any JSON, and a value of another type than the API defines has no better description.
        problem = f"{type(error).__name__}: {error}"
        logger.debug("%s: an unreadable answer", server, exc_info=error)
        raise ModelFailed(f"{server}: the endpoint's answer cannot be read ({problem})", server=server) from error


def read_response(answer: Mapping[str, object], *, model: str) -> Response:
    """Validate a response. Complete it first if it lacks fields that are only bookkeeping."""
    if _has_known_usage(answer):
        try:
            return Response.model_validate(answer)
        except ValidationError:
            pass
    return Response.model_validate(standard_response(answer, model=model))


def standard_response(answer: Mapping[str, object], *, model: str) -> JsonObject:
    """Return a response with every required field. Drop optional fields that are invalid.

    Raise `DataError` if `output` is not a list, because then there is no answer.
    """
    output = answer.get("output")
    if not isinstance(output, list):
        raise DataError(
            f"the endpoint returned a response whose output is of type {type(output).__name__}, not a list"
        )
    fields = {
        **answer,
        "id": answer.get("id") if isinstance(answer.get("id"), str) else new_id("resp"),
        "object": "response",
        "created_at": seconds_of(answer.get("created_at")),
        "model": answer.get("model") if isinstance(answer.get("model"), str) else model,
        "output": _items(output),
        "usage": standard_usage(answer.get("usage"), COUNTS),
    }
    try:
        Response.model_validate(fields)
    except ValidationError as error:
        invalid = {each["loc"][0] for each in error.errors()} - set(NEEDED)
        return {name: value for name, value in fields.items() if name not in invalid}
    return fields


def without_reasoning(given: object) -> object:
    """Return the `input` of a request to `/responses` without its reasoning items. It may also be a text."""
    return [item for item in given if item.get("type") != "reasoning"] if isinstance(given, list) else given


def seconds_of(created: object) -> float:
    """Return the time at which an answer was created, which may be a date as text. Unknown times are now."""
    if isinstance(created, int | float) and not isinstance(created, bool) and 0 < created < 1e12:
        return created
    with suppress(ValueError, OverflowError):
        if isinstance(created, str):
            text = created.strip()
            return float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    return int(time.time())


def _has_known_usage(answer: Mapping[str, object]) -> bool:
    usage = answer.get("usage")
    return usage is None or (
        isinstance(usage, dict) and are_known(usage.get("input_tokens"), usage.get("output_tokens"))
    )


def _items(output: list[Item]) -> list[Item]:
    items = [_item(at, item) for at, item in enumerate(output)]
    calls = [item for item in items if item["type"] == "function_call"]
    for call, call_id in zip(calls, unique_ids(call.get("call_id") or call.get("id") for call in calls), strict=True):
        call["call_id"] = call_id
    return items


def _item(at: int, item: Item) -> Item:
    if not isinstance(item, dict):
        raise DataError(f"the endpoint returned a response whose output[{at}] is not an object")
    kind = item.get("type") or ("message" if "content" in item else None)
    fields: Item = {**item, "type": kind}
    if kind == "message":
        fields |= {"id": _id_of(item, "msg"), "role": item.get("role") or "assistant"}
        fields["content"] = _parts(item.get("content"))
    elif kind == "reasoning":
        fields |= {"id": _id_of(item, "rs"), "summary": _paragraphs(item.get("summary"))}
        if not isinstance(fields.get("content"), list):
            fields.pop("content", None)
    elif kind == "function_call":
        arguments = item.get("arguments")
        written = arguments if isinstance(arguments, str) else dump_json({} if arguments is None else arguments)
        fields["arguments"] = written if isinstance(written, str) else written.decode()
    if "status" in fields and fields["status"] not in STATUSES and kind in ("message", "function_call"):
        fields["status"] = "completed"
    return fields


def _id_of(item: Item, prefix: str) -> str:
    given = item.get("id")
    return given if isinstance(given, str) and given else new_id(prefix)


def _parts(content: object) -> list[object]:
    parts = content if isinstance(content, list) else [] if content is None else [content]
    return [_part({"text": part} if isinstance(part, str) else part) for part in parts]


def _part(part: object) -> object:
    if not isinstance(part, dict) or part.get("type") not in (None, "text", "output_text"):
        return part
    annotations = part.get("annotations")
    text = "" if part.get("text") is None else part["text"]
    known = {name: value for name, value in part.items() if name != "logprobs" or isinstance(value, list)}
    kept = annotations if isinstance(annotations, list) else []
    return {**known, "type": "output_text", "text": text, "annotations": kept}


def _paragraphs(summary: object) -> list[object]:
    given = summary if isinstance(summary, list) else [summary] if isinstance(summary, str) and summary else []
    parts = [{"text": part} if isinstance(part, str) else part for part in given]
    return [
        {**part, "type": "summary_text"}
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]

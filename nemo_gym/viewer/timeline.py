"""The calls of a rollout over time, as the model call capture and the agent recorded them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at, objects_in
from nemo_gym.records.usage import usage_of
from nemo_gym.schemas.row import CAPTURE_KEY, OBSERVATIONS_KEY, TRAJECTORY_KEY
from nemo_gym.viewer.shortening import cut

Tier = Literal["agent", "model", "environment", "judge"]

MOST_SPANS = 2_000
LONGEST_WORD = 200
JUDGES = ("judge", "genrm", "reward_model", "verifier", "grader")
"""A model server counts as a judge if its name contains one of these. Recorded calls do not state their purpose."""


class Call(NamedTuple):
    """A recorded call with its times in seconds since the epoch."""

    tier: Tier
    name: str
    started_at: float
    seconds: float
    status: str | None
    detail: str | None


def timeline_of(record: JsonObject, turns: int) -> list[JsonObject]:
    """Return the timed calls of a rollout, sorted by start time (type `Span` in api.ts).

    The policy's calls are numbered by turn if their number equals `turns`, the number of turns in the conversation.
    """
    calls = sorted(_calls_in(record), key=lambda call: (call.started_at, -call.seconds))[:MOST_SPANS]
    begins = calls[0].started_at if calls else 0.0
    of_policy = [call for call in calls if call.tier == "model"]
    turn_of = {id(call): turn for turn, call in enumerate(of_policy, start=1)} if len(of_policy) == turns else {}
    return [
        {
            "tier": call.tier,
            "name": call.name,
            "start_ms": round(1000 * (call.started_at - begins), 3),
            "duration_ms": round(1000 * call.seconds, 3),
            "turn": turn_of.get(id(call)),
            "status": call.status,
            "detail": call.detail,
        }
        for call in calls
    ]


def seconds_of_calls(record: JsonObject) -> dict[str, float]:
    """Return the measured durations of tool calls, in seconds, keyed by call id."""
    calls = [*objects_in(object_at(record, TRAJECTORY_KEY).get("tool_calls")), *_observed_tool_calls(record)]
    return {
        str(call["tool_call_id"]): seconds
        for call in calls
        if "tool_call_id" in call and (seconds := _seconds_of(call)) is not None
    }


def _calls_in(record: JsonObject) -> Iterator[Call]:
    trajectory, capture = object_at(record, TRAJECTORY_KEY), object_at(record, CAPTURE_KEY)
    calls = objects_in(trajectory.get("model_calls"))
    # If the record does not have a trajectory yet, use the model calls in the capture.
    of_model = [(call, object_at(call, "response_metadata"), object_at(call, "token_stats")) for call in calls] or [
        (call, call, call) for call in objects_in(capture.get("calls"))
    ]
    for call, answer, counts in of_model:
        name = _word(object_at(answer, "model_ref").get("name")) or "model"
        tier: Tier = "judge" if any(word in name.lower() for word in JUDGES) else "model"
        yield from _timed(call, tier, name, answer.get("error_category") or answer.get("status_code"), _tokens(counts))
    for call in objects_in(trajectory.get("tool_calls")) or _observed_tool_calls(record):
        status = call.get("error_type") or call.get("status")
        yield from _timed(call, "environment", _word(call.get("tool_name")) or "tool", status, None)


def _timed(call: JsonObject, tier: Tier, name: str, status: object, detail: str | None) -> Iterator[Call]:
    started_at, seconds = _number(call.get("started_at")), _seconds_of(call)
    if started_at is not None and seconds is not None:
        yield Call(tier, name, started_at, seconds, _word(status), detail)


def _seconds_of(call: JsonObject) -> float | None:
    for key in ("duration_ms", "latency_total_ms"):
        if (measured := _number(call.get(key))) is not None:
            return max(measured, 0.0) / 1000
    started_at, completed_at = _number(call.get("started_at")), _number(call.get("completed_at"))
    return max(completed_at - started_at, 0.0) if started_at is not None and completed_at is not None else None


def _tokens(counts: JsonObject) -> str | None:
    given, written = usage_of(counts)[:2]
    return None if given is None or written is None else f"{given:,} tokens in, {written:,} out"


def _observed_tool_calls(record: JsonObject) -> list[JsonObject]:
    records = objects_in(object_at(record, OBSERVATIONS_KEY).get("records"))
    return [each for each in records if each.get("kind") == "tool_call"]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _word(value: object) -> str | None:
    return None if value is None else cut(str(value), LONGEST_WORD)

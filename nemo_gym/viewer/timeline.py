"""The calls and times of a rollout, as the model call capture and the agent recorded them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeGuard

from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at, objects_in
from nemo_gym.records.usage import usage_of
from nemo_gym.schemas.row import SECONDS_KEY
from nemo_gym.viewer.shortening import cut

Tier = Literal["agent", "model", "environment", "judge"]

MOST_SPANS = 2_000
LONGEST_WORD = 200
RECORDED = frozenset({"ng_model_call_capture", "ng_trajectory", "ng_agent_observations"})
"""The fields with calls."""
PLAUSIBLE, FAR = 1e9, 1e15
"""Moments are after the first, in 2001, and before the second. Replies without a real time have placeholders."""
JUDGES = ("judge", "genrm", "reward_model", "verifier", "grader")
"""A model server counts as a judge if its name contains one of these. Recorded calls do not state their purpose."""


class Call(NamedTuple):
    """A recorded call with its times in seconds since the epoch."""

    tier: Tier
    name: str
    started_at: float | None
    seconds: float
    status: str | None
    detail: str | None


class Times(NamedTuple):
    """Durations in seconds, and moments in seconds since the epoch. None if they were not recorded."""

    seconds: float | None = None
    model_seconds: float | None = None
    tool_seconds: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    of_tools: tuple[tuple[str, float], ...] = ()
    """The name and the seconds of each recorded tool call."""


def times_of(record: Mapping[str, object], response: Mapping[str, object]) -> Times:
    """Return the times of a rollout, from its duration, its calls and its response."""
    seconds, created_at = _number(record.get(SECONDS_KEY)), _number(response.get("created_at"))
    calls = [] if RECORDED.isdisjoint(record) else list(_calls_in(record))
    of_tools = tuple((call.name, call.seconds) for call in calls if call.tier == "environment")
    of_models = [call.seconds for call in calls if call.tier != "environment"]
    spans = [(call.started_at, call.started_at + call.seconds) for call in calls if is_plausible(call.started_at)]
    return Times(
        seconds,
        sum(of_models) if of_models else None,
        sum(seconds for _, seconds in of_tools) if of_tools else None,
        min((start for start, _ in spans), default=None),
        max((end for _, end in spans), default=created_at if is_plausible(created_at) else None),
        of_tools,
    )


def is_plausible(moment: float | None) -> TypeGuard[float]:
    """Return whether a time is known and is not the placeholder of a reply without a real time."""
    return moment is not None and PLAUSIBLE < moment < FAR


def moment_of(text: str | None) -> datetime | None:
    """Parse an ISO 8601 time. Assume UTC if the time zone is missing. Return None if the text is not a time."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def timeline_of(record: Mapping[str, object], turns: int) -> list[Mapping[str, object]]:
    """Return the timed calls of a rollout, sorted by start time (type `Span` in api.ts).

    The policy's calls are numbered by turn if their number equals `turns`, the number of turns in the conversation.
    """
    started = [(call.started_at, call) for call in _calls_in(record) if call.started_at is not None]
    started.sort(key=lambda each: (each[0], -each[1].seconds))
    del started[MOST_SPANS:]
    of_policy = [call for _, call in started if call.tier == "model"]
    turn_of = {id(call): turn for turn, call in enumerate(of_policy, start=1)} if len(of_policy) == turns else {}
    return [
        {
            "tier": call.tier, "name": call.name, "start_ms": round(1000 * (started_at - started[0][0]), 3),
            "duration_ms": round(1000 * call.seconds, 3), "turn": turn_of.get(id(call)), "status": call.status,
            "detail": call.detail,
        }
        for started_at, call in started
    ]  # fmt: skip


def seconds_of_calls(record: Mapping[str, object]) -> dict[str, float]:
    """Return the measured durations of tool calls, in seconds, keyed by call id."""
    calls = [*objects_in(object_at(record, "ng_trajectory").get("tool_calls")), *_observed_tool_calls(record)]
    return {
        str(call["tool_call_id"]): seconds
        for call in calls
        if "tool_call_id" in call and (seconds := _seconds_of(call)) is not None
    }


def _calls_in(record: Mapping[str, object]) -> Iterator[Call]:
    trajectory, capture = object_at(record, "ng_trajectory"), object_at(record, "ng_model_call_capture")
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


def _timed(call: Mapping[str, object], tier: Tier, name: str, status: object, detail: str | None) -> Iterator[Call]:
    if (seconds := _seconds_of(call)) is not None:
        yield Call(tier, name, _number(call.get("started_at")), seconds, _word(status), detail)


def _seconds_of(call: Mapping[str, object]) -> float | None:
    for key in ("duration_ms", "latency_total_ms"):
        if (measured := _number(call.get(key))) is not None:
            return max(measured, 0.0) / 1000
    started_at, completed_at = _number(call.get("started_at")), _number(call.get("completed_at"))
    return max(completed_at - started_at, 0.0) if started_at is not None and completed_at is not None else None


def _tokens(counts: object) -> str | None:
    given, written = usage_of(counts)[:2]
    return None if given is None or written is None else f"{given:,} tokens in, {written:,} out"


def _observed_tool_calls(record: Mapping[str, object]) -> list[JsonObject]:
    records = objects_in(object_at(record, "ng_agent_observations").get("records"))
    return [each for each in records if each.get("kind") == "tool_call"]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _word(value: object) -> str | None:
    return None if value is None else cut(str(value), LONGEST_WORD)

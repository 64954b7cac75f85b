"""The times of a rollout, from the records of its calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at, objects_in
from nemo_gym.schemas.row import CAPTURE_KEY, SECONDS_KEY, TRAJECTORY_KEY

PLAUSIBLE = 1e9
"""The earliest plausible time, in 2001. Earlier times are placeholders in replies without a real time."""


class Times(NamedTuple):
    """Durations in seconds, and moments in seconds since the epoch. None if they were not recorded."""

    seconds: float | None = None
    model_seconds: float | None = None
    tool_seconds: float | None = None
    started_at: float | None = None
    ended_at: float | None = None


UNKNOWN = Times()


def times_of(row: JsonObject, response: JsonObject) -> Times:
    seconds, created_at = _number(row.get(SECONDS_KEY)), _moment(response.get("created_at"))
    capture, trajectory = object_at(row, CAPTURE_KEY), object_at(row, TRAJECTORY_KEY)
    if not capture and not trajectory:
        return Times(seconds=seconds, ended_at=created_at) if seconds or created_at else UNKNOWN
    # If the record does not have a trajectory yet, its model calls are in the capture.
    models = objects_in(trajectory.get("model_calls")) or objects_in(capture.get("calls"))
    tools = objects_in(trajectory.get("tool_calls"))
    starts = [at for call in (*models, *tools) if (at := _moment(call.get("started_at"))) is not None]
    ends = [at for call in (*models, *tools) if (at := _moment(call.get("completed_at"))) is not None]
    started_at, ended_at = min(starts, default=None), max([*ends, *starts], default=created_at)
    return Times(
        seconds,
        _sum_of(models, "duration_ms", "latency_total_ms"),
        _sum_of(tools, "duration_ms"),
        started_at,
        ended_at,
    )


def _sum_of(calls: list[JsonObject], *names: str) -> float | None:
    durations = [ms for call in calls for name in names if (ms := _number(call.get(name))) is not None]
    return sum(durations) / 1000 if durations else None


def _number(value: object) -> float | None:
    if (type(value) is float or type(value) is int) and 0 <= value < 1e15:
        return float(value)
    return None


def _moment(value: object) -> float | None:
    number = _number(_seconds_of(value) if isinstance(value, str) else value)
    return number if number is not None and number > PLAUSIBLE else None


def moment_of(text: str | None) -> datetime | None:
    """Parse an ISO 8601 time. Assume UTC if the time zone is missing. Return None if the text is not a time."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def _seconds_of(text: str) -> float | None:
    """Convert an ISO 8601 time to seconds since the epoch. Return None if the text is not a time."""
    try:
        moment = moment_of(text)
        return None if moment is None else moment.timestamp()
    except OverflowError:
        return None

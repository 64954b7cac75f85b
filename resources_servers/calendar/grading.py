"""Parse a calendar from a message and compare it with the requirements."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from nemo_gym.grading import strip_reasoning
from resources_servers.calendar.requirements import MINUTES_OF_DAY, Requirement

THINKING = "<think>"
TRIED_LISTS = 50
"""Maximum number of positions at which a list is parsed, because each attempt may scan the rest of the message."""

_LIST_START = re.compile(r"\[\s*(?=\{)")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)")


class Booked(NamedTuple):
    """An event of the model's calendar. `start` and `end` are minutes since midnight."""

    key: str
    start: int
    end: int


def booked_in(message: str) -> list[Booked] | None:
    """Return the events of the first JSON list of objects in a message.

    Returns None if there is no such list, if an object in it is not an event, or if the message contains `<think>`.
    """
    if THINKING in message:
        return None
    entries = _first_list(strip_reasoning(message))
    if entries is None:
        return None
    events = [_booked(entry) for entry in entries]
    return None if None in events else [event for event in events if event is not None]


def keeps_all(booked: Sequence[Booked], expected: Sequence[Requirement]) -> bool:
    """Return whether `booked` holds exactly the expected events, with valid times and durations and no overlaps."""
    required = {requirement.key: requirement for requirement in expected}
    if len(booked) != len(required) or {event.key for event in booked} != required.keys():
        return False
    in_order = sorted(booked, key=lambda event: event.start)
    if any(earlier.end > later.start for earlier, later in pairwise(in_order)):
        return False
    return all(_keeps(event, required[event.key]) for event in booked)


def _keeps(event: Booked, required: Requirement) -> bool:
    is_inside = required.span.start <= event.start and event.end <= required.span.end
    return is_inside and event.end - event.start == required.duration


def _first_list(message: str) -> list[Any] | None:
    decoder = json.JSONDecoder()
    for place, start in enumerate(_LIST_START.finditer(message)):
        if place == TRIED_LISTS:
            break
        try:
            found, _ = decoder.raw_decode(message, start.start())
        except (ValueError, RecursionError):
            continue
        return list(found)
    return None


def _booked(entry: Any) -> Booked | None:
    if not isinstance(entry, dict):
        return None
    key, duration = entry.get("event_id"), entry.get("duration")
    clock = _CLOCK.fullmatch(entry["start_time"].strip()) if isinstance(entry.get("start_time"), str) else None
    if clock is None or not _is_whole(duration) or not (isinstance(key, str) or _is_whole(key)):
        return None
    start = int(clock[1]) * 60 + int(clock[2])
    if start >= MINUTES_OF_DAY:
        return None
    return Booked(key.strip() if isinstance(key, str) else str(int(key)), start, start + int(duration))


def _is_whole(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and value.is_integer())

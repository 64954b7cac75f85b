"""Parse a calendar from a message and compare it with the requirements."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from nemo_gym.grading import strip_reasoning
from resources_servers.calendar.requirements import MINUTES_OF_DAY, Requirement
from resources_servers.calendar.scheduling import clock

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


def first_problem(booked: Sequence[Booked] | None, expected: Sequence[Requirement]) -> str | None:
    """Return the first difference between a calendar and the requirements, or None if it meets all of them.

    It must hold exactly the expected events, with valid times and durations and without overlaps.
    """
    if booked is None:
        return "the last message does not contain a list of valid events"
    required = {requirement.key: requirement for requirement in expected}
    keys = {event.key for event in booked}
    if missing := sorted(required.keys() - keys):
        return f"event {missing[0]} is missing"
    if len(booked) != len(required):
        return f"the calendar has {len(booked)} events, and {len(required)} are expected"
    in_order = sorted(booked, key=lambda event: event.start)
    for earlier, later in pairwise(in_order):
        if earlier.end > later.start:
            return f"events {earlier.key} and {later.key} overlap"
    return next(filter(None, (_problem(event, required[event.key]) for event in booked)), None)


def _problem(event: Booked, required: Requirement) -> str | None:
    if event.end - event.start != required.duration:
        return f"event {event.key} has {event.end - event.start} minutes, and {required.duration} are expected"
    if required.span.start <= event.start and event.end <= required.span.end:
        return None
    allowed = f"{clock(required.span.start)} to {clock(required.span.end)}"
    return f"event {event.key} is from {clock(event.start)} to {clock(event.end)}, outside of {allowed}"


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

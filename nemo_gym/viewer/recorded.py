"""Read parts of records. Other programs write records, too, so any field may have a value of any type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from nemo_gym.jsonl import JsonObject


def object_at(record: Mapping[str, object], key: str) -> JsonObject:
    """Return the object in a field, or an empty object if the field does not contain one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[JsonObject]:
    """Return the items of a list that are objects, or an empty list if the value is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def moment_of(text: str | None) -> datetime | None:
    """Parse an ISO 8601 time. Assume UTC if the time zone is missing. Return None if the text is not a time."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def seconds_of(text: str) -> float | None:
    """Convert an ISO 8601 time to seconds since the epoch. Return None if the text is not a time."""
    try:
        moment = moment_of(text)
        return None if moment is None else moment.timestamp()
    except OverflowError:
        return None

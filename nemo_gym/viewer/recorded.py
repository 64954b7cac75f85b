"""Parts of records, whose fields may have values of any type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from nemo_gym.jsonl import JsonObject


def object_at(record: Mapping[str, object], key: str) -> JsonObject:
    """Return the object in a field, empty if it is not one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[JsonObject]:
    """Return the objects in a list, empty if it is not one."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def moment_of(text: str | None) -> datetime | None:
    """Return the time that a text in ISO 8601 contains, in UTC without a time zone; None if it is not one."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def seconds_of(text: str) -> float | None:
    """Return the time that a text in ISO 8601 contains, in seconds since the epoch; None if it is not one."""
    try:
        moment = moment_of(text)
        return None if moment is None else moment.timestamp()
    except OverflowError:
        return None

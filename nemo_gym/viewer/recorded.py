"""Read parts of records. Any field may have a value of any type, because other programs write records, too."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from nemo_gym.jsonl import JsonObject


def object_at(record: Mapping[str, object], key: str) -> JsonObject:
    """Return the object in a field, or an empty object if the field does not contain one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[JsonObject]:
    """Return the objects in a list, or an empty list if the value is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def moment_of(text: str | None) -> datetime | None:
    """Parse a time in ISO 8601. Without a time zone it is in UTC. Return None if the text is not a time."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def seconds_of(text: str) -> float | None:
    """Parse a time in ISO 8601 to seconds since the epoch. Return None if the text is not a time."""
    try:
        moment = moment_of(text)
        return None if moment is None else moment.timestamp()
    except OverflowError:
        return None

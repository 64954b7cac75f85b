"""Cut values that are too large for a browser: long texts, large JSON, deep nesting.

`/api/raw` still streams the whole record from its file.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from nemo_gym.jsonl import dump_json

LONGEST_TEXT = 64 * 1024
"""The maximum number of characters of one text."""
LARGEST_VALUE = 64 * 1024
"""The maximum number of bytes of one JSON value."""
LARGEST_FIELDS = 512 * 1024
"""The maximum number of bytes of several fields together."""
ROOM_FOR_NESTING = 16
"""The nesting levels that a reply adds around a value. orjson writes at most 254 levels."""


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """Cut a text that is too long, and append the number of characters that were cut off."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def size_of(value: object) -> int | None:
    """Return the size of a value as JSON in bytes, or None if it is nested too deeply to be written."""
    wrapped = value
    for _ in range(ROOM_FOR_NESTING):
        wrapped = [wrapped]
    try:
        return len(dump_json(wrapped)) - 2 * ROOM_FOR_NESTING
    except (orjson.JSONEncodeError, RecursionError):
        return None


def shortened(value: object, largest: int = LARGEST_VALUE) -> object:
    """Return a small value unchanged. Cut a long text, and replace any other large value with a note."""
    if isinstance(value, str):
        return cut(value, largest)
    size = size_of(value)
    if size is None:
        return "(nested too deeply to be shown; see the raw record)"
    return value if size <= largest else f"({size:,} bytes of JSON; see the raw record)"


def shortened_fields(fields: Mapping[str, object], largest: int = LARGEST_FIELDS) -> dict[str, object]:
    """Return the fields with their large values shortened.

    If the shortened fields are still too large together, a note replaces the last ones.
    """
    found: dict[str, object] = {}
    left = largest
    for name, value in fields.items():
        found[cut(name, 200)] = short = shortened(value, min(LARGEST_VALUE, max(left, 0)))
        left -= len(name) + (size_of(short) or 0)
        if left < -largest:
            found["…"] = f"({len(fields) - len(found):,} more fields; see the raw record)"
            break
    return found

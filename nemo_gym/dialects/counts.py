"""Token counts and times that endpoints report, of which some are unknown."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import TypeGuard


def count_of(value: object) -> int | None:
    """Return a number of tokens, or None for any other value. Some endpoints write whole numbers as floats."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if is_count(value) else None


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def are_known(read: object, written: object) -> bool:
    """Return whether an endpoint counted the tokens. A missing count and only zeros mean that it did not."""
    return is_count(read) and is_count(written) and read + written > 0


def seconds_of(created: object) -> float:
    """Return the time at which an answer was created, which may be a date as text. Unknown times are now."""
    if isinstance(created, int | float) and not isinstance(created, bool) and 0 < created < 1e12:
        return created
    with suppress(ValueError, OverflowError):
        if isinstance(created, str):
            text = created.strip()
            return float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    return int(time.time())

"""Parse the JSON that a model wrote, without rounding its integers."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_LONG_NUMBER = re.compile(r"\d{19}")


def loads_exact(text: str) -> Any:
    """Parse JSON. Raise `ValueError` if it is invalid, too deep, or has a number beyond the range of a float."""
    value = orjson.loads(text)
    if not _LONG_NUMBER.search(text):
        return value
    try:
        # Use json for integers of more than 64 bits, because orjson converts them to floats.
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error

"""Resolve references within a JSON Schema."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def referenced(root: Any, reference: Any) -> Any:
    """Return the part of a schema to which a reference such as `#/$defs/node` points, or None if it does not exist."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    place = root
    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        elif isinstance(place, dict) and name in place:
            place = place[name]
        else:
            return None
    return place

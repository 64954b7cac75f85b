"""Compare a dataset's metrics with an earlier metrics file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject

CLOSE = 5e-3
"""The tolerance for numbers of at least 1. Metrics files round these to two decimals."""
CLOSE_BELOW_1 = 5e-4


def contradictions(path: Path, measured: Mapping[str, object]) -> Iterator[str]:
    """Yield the differences between an earlier metrics file and the values measured now, as text.

    Keys that only `measured` has are ignored. Yield nothing if the file does not exist. Raise `DataError` if it is not
    a JSON object.
    """
    if path.is_file():
        yield from _differences(earlier_metrics(path), measured, "")


def earlier_metrics(path: Path) -> JsonObject:
    """Read a metrics file. Raise `DataError` if it is not a JSON object."""
    try:
        earlier = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}:{error.colno}: not valid JSON ({error.msg}). Delete the file."
        ) from error
    if not isinstance(earlier, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(earlier).__name__}. Delete the file.")
    return earlier


def _differences(earlier: Mapping[str, object], now: Mapping[str, object], above: str) -> Iterator[str]:
    for key, was in earlier.items():
        name, value = f"{above}{key}", now.get(key)
        if key not in now:
            if was is not None:
                yield f"{name} was {was!r} and is missing now"
        elif isinstance(was, dict) and isinstance(value, dict):
            yield from _differences(was, value, f"{name}.")
        elif not _agree(was, value):
            yield f"{name} was {was!r} and is {value!r} now"


def _agree(was: object, now: object) -> bool:
    if isinstance(was, bool) or isinstance(now, bool):
        return was is now
    if isinstance(was, int | float) and isinstance(now, int | float):
        return abs(was - now) <= (CLOSE if abs(was) >= 1 else CLOSE_BELOW_1)
    if isinstance(was, list) and isinstance(now, list):
        return sorted(map(orjson.dumps, was)) == sorted(map(orjson.dumps, now))
    return bool(was == now)

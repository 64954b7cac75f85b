"""Whether a dataset's metrics still say what an earlier file of them says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.errors import DataError

CLOSE = 5e-3
"""Numbers from 1 on are rounded to two decimals."""
CLOSE_BELOW_1 = 5e-4


def contradictions(path: Path, measured: Mapping[str, Any]) -> Iterator[str]:
    """What an earlier metrics file says otherwise, by its keys; what it does not say cannot contradict.

    Nothing where there is no such file. Raises `DataError` where it is no JSON object.
    """
    if not path.is_file():
        return
    try:
        earlier = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}:{error.colno}: not valid JSON ({error.msg}). Remove it.") from error
    if not isinstance(earlier, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(earlier).__name__}. Remove it.")
    yield from _differences(earlier, measured, "")


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any], above: str) -> Iterator[str]:
    for key, was in earlier.items():
        name = f"{above}{key}"
        if key not in now:
            if was is not None:
                yield f"{name} was {was!r}, and is not there now"
        elif isinstance(was, dict) and isinstance(now[key], dict):
            yield from _differences(was, now[key], f"{name}.")
        elif not _agree(was, now[key]):
            yield f"{name} was {was!r}, and is {now[key]!r} now"


def _agree(was: Any, now: Any) -> bool:
    if isinstance(was, bool) or isinstance(now, bool):
        return was is now
    if isinstance(was, int | float) and isinstance(now, int | float):
        return abs(was - now) <= (CLOSE if abs(was) >= 1 else CLOSE_BELOW_1)
    if isinstance(was, list) and isinstance(now, list):
        return sorted(map(orjson.dumps, was)) == sorted(map(orjson.dumps, now))
    return bool(was == now)

"""Our errors of calls for folders that catch aiohttp's: what we raise is what aiohttp would have raised, too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, TypeVar

from nemo_gym.errors import ServerCallError

ErrorT = TypeVar("ErrorT", bound=ServerCallError)

REPLIED = "ClientResponseError"


def also_aiohttps(
    error: ErrorT, *, method: str = "", url: str = "", headers: Mapping[str, str] | None = None
) -> ErrorT:
    """The same error; where this process has imported aiohttp, it is of the class that aiohttp has for it, too.

    Whoever catches an error has imported its class, so nobody else waits for that. The rest is what aiohttp tells of
    an answer whose status is an error.
    """
    if "aiohttp" not in sys.modules:
        return error
    ours: Any = type(error)
    kind = _kind(ours, error.aiohttps)
    known: ErrorT = kind.__new__(kind)
    known.args = error.args
    vars(known).update(vars(error))
    if error.aiohttps == REPLIED:
        status: int = vars(error)["status"]
        asked = SimpleNamespace(method=method, url=url, real_url=url, headers={})
        phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
        vars(known).update(request_info=asked, history=(), message=phrase, headers=headers)
    return known


@cache
def _kind(ours: Any, name: str) -> Any:
    import aiohttp

    theirs: type[Exception] = getattr(aiohttp, name)
    # Theirs would write itself from what only they know of a connection.
    told = {"__str__": Exception.__str__, "__repr__": Exception.__repr__, "__module__": ours.__module__}
    return type(ours.__name__, (ours, theirs), told)

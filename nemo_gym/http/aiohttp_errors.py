"""Call errors that are also aiohttp errors, for server folders that catch aiohttp's exceptions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from http.client import responses
from types import SimpleNamespace
from typing import Any, TypeVar

from nemo_gym.errors import ServerCallError

ErrorT = TypeVar("ErrorT", bound=ServerCallError)

REPLIED = "ClientResponseError"


def also_aiohttps(error: ErrorT, method: str = "", url: str = "", headers: Mapping[str, str] | None = None) -> ErrorT:
    """Return a copy of the error that is also an instance of the matching aiohttp class.

    If this process has not imported aiohttp, return the error itself, because no code here can catch aiohttp's errors.
    The keyword arguments fill the attributes of aiohttp's `ClientResponseError`.
    """
    if "aiohttp" not in sys.modules:
        return error
    ours: type = type(error)
    kind = _kind(ours, error.aiohttps)
    known: ErrorT = kind.__new__(kind)
    known.args = error.args
    vars(known).update(vars(error))
    if error.aiohttps == REPLIED:
        status: int = vars(error)["status"]
        asked = SimpleNamespace(method=method, url=url, real_url=url, headers={})
        vars(known).update(request_info=asked, history=(), message=responses.get(status, ""), headers=headers)
    return known


@cache
def _kind(ours: type[ServerCallError], name: str) -> Any:
    import aiohttp

    theirs: type[Exception] = getattr(aiohttp, name)
    # Keep nemo_gym's message, because aiohttp's message would contain connection details that are unknown here.
    members = {"__str__": Exception.__str__, "__repr__": Exception.__repr__, "__module__": ours.__module__}
    return type(ours.__name__, (ours, theirs), members)

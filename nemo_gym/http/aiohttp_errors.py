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
    """Return the error, as an instance of the matching aiohttp class too if this process has imported aiohttp.

    Code that catches an aiohttp error has imported aiohttp already, so other processes need not pay for the import.
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
    # Keep our own texts, because aiohttp builds its texts from connection details that our errors do not have.
    members = {"__str__": Exception.__str__, "__repr__": Exception.__repr__, "__module__": ours.__module__}
    return type(ours.__name__, (ours, theirs), members)

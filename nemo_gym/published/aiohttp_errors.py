"""Call errors that are also aiohttp errors, for server folders that catch aiohttp's exceptions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

from nemo_gym.errors import EndpointError, ServerCallError
from nemo_gym.http.raising import ErrorT
from nemo_gym.http.reply import BrokenReply, HungUp, NotConnected, ReplyTimedOut, ServerReplied

REPLIED = "ClientResponseError"
NAMES: dict[type[ServerCallError], str] = {
    NotConnected: "ClientConnectorError",
    HungUp: "ServerDisconnectedError",
    BrokenReply: "ClientPayloadError",
    ReplyTimedOut: "ServerTimeoutError",
    ServerReplied: REPLIED,
    ServerCallError: "ClientError",
}
"""The names of the corresponding aiohttp errors. The nearest base class in this table counts."""


def also_aiohttps(error: ErrorT, method: str, url: str, headers: Mapping[str, str] | None) -> ErrorT:
    """Return a copy of the error that is also an instance of the matching aiohttp class.

    If this process has not imported aiohttp, return the error itself, because no code here can catch aiohttp's errors.
    The other arguments fill the attributes of aiohttp's `ClientResponseError`.
    """
    if "aiohttp" not in sys.modules:
        return error
    ours: type = type(error)
    name = _name_of(error)
    kind = _kind(ours, name)
    known: ErrorT = kind.__new__(kind)
    known.args = error.args
    vars(known).update(vars(error))
    if name == REPLIED:
        phrase = next((each.phrase for each in HTTPStatus if each == vars(error)["status"]), "")
        asked = SimpleNamespace(method=method, url=url, real_url=url, headers={})
        vars(known).update(request_info=asked, history=(), message=phrase, headers=headers)
    return known


def _name_of(error: ServerCallError) -> str:
    if isinstance(error, EndpointError):
        return "ClientConnectionError" if error.status is None else REPLIED
    return next(NAMES[cls] for cls in type(error).__mro__ if cls in NAMES)


@cache
def _kind(ours: type[ServerCallError], name: str) -> Any:
    import aiohttp

    theirs: type[Exception] = getattr(aiohttp, name)
    # Keep nemo_gym's message, because aiohttp's message would contain connection details that are unknown here.
    members = {"__str__": Exception.__str__, "__repr__": Exception.__repr__, "__module__": ours.__module__}
    return type(ours.__name__, (ours, theirs), members)

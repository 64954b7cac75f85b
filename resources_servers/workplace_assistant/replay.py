"""Execute recorded calls on a database."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from nemo_gym import ToolError
from resources_servers.workplace_assistant.database import Database
from resources_servers.workplace_assistant.toolkits import TOOLS


class UnreadableCall(ValueError):
    """An error for a call with an unknown tool or invalid arguments."""


def make_call(database: Database, name: str, arguments: str) -> None:
    """Execute a call with JSON arguments, ignoring tool errors. Raises `UnreadableCall` if the call is invalid."""
    with suppress(ToolError):
        try_call(database, name, arguments)


def try_call(database: Database, name: str, arguments: str) -> None:
    """Execute a call with JSON arguments. Raises the tool's `ToolError`, and `UnreadableCall` for an invalid call."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise UnreadableCall(f"{name}: the arguments are not JSON ({str(error)[:80]})") from error
    if not isinstance(given, dict):
        raise UnreadableCall(f"{name}: the arguments are not a JSON object")
    if name not in TOOLS:
        close = get_close_matches(name, TOOLS, 1)
        raise UnreadableCall(f"{name[:80]!r} is not a tool{f'; did you mean {close[0]!r}?' if close else ''}")
    try:
        _checked(name)(database, **given)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise UnreadableCall(f"{name}: {problems}") from error


@cache
def _checked(name: str) -> Callable[..., Any]:
    """Return the tool as a function that validates its arguments as the tool's route does."""
    checking = validate_call(config=ConfigDict(arbitrary_types_allowed=True))
    return checking(TOOLS[name])

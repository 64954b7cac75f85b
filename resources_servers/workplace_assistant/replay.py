"""Calls that are written down, made on a database."""

from __future__ import annotations

import json
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from nemo_gym import ToolError
from resources_servers.workplace_assistant.database import Database
from resources_servers.workplace_assistant.toolkits import TOOLS


class UnreadableCall(ValueError):
    """No tool has this name, or takes these arguments."""


def make_call(database: Database, name: str, arguments: str) -> None:
    """Make a call whose arguments are JSON. Raises `UnreadableCall`; a call that fails changes nothing."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise UnreadableCall(f"{name}: the arguments are not JSON ({str(error)[:80]})") from error
    if not isinstance(given, dict):
        raise UnreadableCall(f"{name}: the arguments are no JSON object")
    if name not in TOOLS:
        close = get_close_matches(name, TOOLS, 1)
        raise UnreadableCall(f"there is no tool {name[:80]!r}{f', but {close[0]!r}' if close else ''}")
    try:
        _checked(name)(database, **given)
    except ToolError:
        return
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise UnreadableCall(f"{name}: {problems}") from error


@cache
def _checked(name: str) -> Callable[..., Any]:
    """The tool with its arguments checked by their types, as its route checks them."""
    checking = validate_call(config=ConfigDict(arbitrary_types_allowed=True))
    return checking(TOOLS[name])

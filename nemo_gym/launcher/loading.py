"""Longer timeouts and progress messages for servers that load a model before they are ready."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import isfinite

from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.errors import ConfigError
from nemo_gym.launcher.base import ServerProcess

START_TIMEOUT_KEY = "start_timeout_s"
"""The key in a server's block for the number of seconds that the server may need to start."""


def longest_start_s(run: RunConfig, usual_s: float) -> float:
    """Return the start timeout in seconds: `usual_s`, or a server's `start_timeout_s` if that is longer.

    Raise `ConfigError` for a `start_timeout_s` that is not a finite number.
    """
    return max([usual_s, *map(_start_timeout_s, run.servers_here.values())])


def _start_timeout_s(server: ServerConfig) -> float:
    given = server.settings.get(START_TIMEOUT_KEY) or 0
    with suppress(TypeError, ValueError):
        if isfinite(seconds := float(given)):
            return seconds
    place = server.origins.get(START_TIMEOUT_KEY)
    raise ConfigError(
        f"{f'{place}: ' if place else ''}{server.name}: {START_TIMEOUT_KEY} is {given!r}, but must be a number of "
        "seconds, such as 600."
    )


def said_last(run: RunConfig, waiting: Iterable[ServerProcess]) -> str:
    """Return `: ` and the last log line of a server that is loading a model, or an empty string if no server is."""
    loading = {name for name, server in run.servers.items() if server.settings.get(START_TIMEOUT_KEY)}
    lines = [each.tail[-1] for each in waiting if each.name.partition("#")[0] in loading and each.tail]
    return f": {lines[0]}" if lines else ""

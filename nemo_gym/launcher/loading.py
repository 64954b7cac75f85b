"""Longer timeouts and progress messages for servers that load a model before they are ready."""

from __future__ import annotations

from collections.abc import Iterable

from nemo_gym.config.models import RunConfig
from nemo_gym.launcher.base import ServerProcess

START_TIMEOUT_KEY = "start_timeout_s"
"""The key in a server's block for the number of seconds that the server may need to start."""


def longest_start_s(run: RunConfig, usual_s: float) -> float:
    """Return the start timeout in seconds: `usual_s`, or a server's `start_timeout_s` if that is longer."""
    return max([usual_s, *(float(each.settings.get(START_TIMEOUT_KEY) or 0) for each in run.servers_here.values())])


def said_last(run: RunConfig, waiting: Iterable[ServerProcess]) -> str:
    """Return `: ` and the last log line of a server that is loading a model, or an empty string if no server is."""
    loading = {name for name, server in run.servers.items() if server.settings.get(START_TIMEOUT_KEY)}
    lines = [each.tail[-1] for each in waiting if each.name.partition("#")[0] in loading and each.tail]
    return f": {lines[0]}" if lines else ""

"""Servers that load a model before they are ready, and so may need longer than others."""

from __future__ import annotations

from collections.abc import Iterable

from nemo_gym.config.models import RunConfig
from nemo_gym.launcher.base import ServerProcess

START_TIMEOUT_KEY = "start_timeout_s"
"""The key of a server's block with the seconds that it may need to start."""


def longest_start_s(run: RunConfig, usual_s: float) -> float:
    """Return the seconds that the servers have to start: `usual_s`, or more if a server's settings ask for more."""
    return max([usual_s, *(float(each.settings.get(START_TIMEOUT_KEY) or 0) for each in run.servers_here.values())])


def said_last(run: RunConfig, waiting: Iterable[ServerProcess]) -> str:
    """Return the last log line of the first server that loads a model, which shows its progress."""
    loading = {name for name, server in run.servers.items() if server.settings.get(START_TIMEOUT_KEY)}
    lines = [each.tail[-1] for each in waiting if each.name.partition("#")[0] in loading and each.tail]
    return f": {lines[0]}" if lines else ""

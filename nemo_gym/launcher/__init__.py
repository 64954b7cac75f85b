"""The launcher, which starts, watches and stops the server processes of a run.

The names below are imported on first access. A command can thus start the warm process, from which servers are forked,
before its other imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nemo_gym.launcher.local import RunningServers as RunningServers
    from nemo_gym.launcher.local import launch as launch
    from nemo_gym.launcher.warm import WarmStarter as WarmStarter

_HOMES = {"RunningServers": "local", "WarmStarter": "warm", "launch": "local"}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - all of them are strings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nemo_gym.launcher' has no attribute '{name}'")
    found = globals()[name] = getattr(importlib.import_module(f"nemo_gym.launcher.{_HOMES[name]}"), name)
    return found

"""The launcher, which starts, watches and stops the server processes of a run.

The names below are imported on first access. A command can thus start the warm process, from which servers are forked,
before its other imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_gym.lazy import lazy_names

if TYPE_CHECKING:
    from nemo_gym.launcher.local import RunningServers as RunningServers
    from nemo_gym.launcher.local import launch as launch
    from nemo_gym.launcher.warm import WarmStarter as WarmStarter

_HOMES = {"RunningServers": "local", "WarmStarter": "warm", "launch": "local"}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - all of them are strings

__getattr__ = lazy_names(__name__, _HOMES)

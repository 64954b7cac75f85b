"""Start, watch and stop the servers of a run, each a process of its own."""

from __future__ import annotations

from nemo_gym.launcher.local import RunningServers, launch
from nemo_gym.launcher.warm import WarmStarter

__all__ = ["RunningServers", "WarmStarter", "launch"]

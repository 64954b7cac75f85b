"""The launcher, which starts, watches and stops the server processes of a run."""

from __future__ import annotations

from nemo_gym.launcher.local import RunningServers, launch
from nemo_gym.launcher.warm import WarmStarter

__all__ = ["RunningServers", "WarmStarter", "launch"]

"""Environments in Gymnasium's manner, and the base class for one's own under its published name."""

from resources_servers.gymnasium.server import GymnasiumServer

__all__ = ["GymnasiumServer"]

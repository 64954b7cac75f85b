"""Gymnasium environments, and the base class `GymnasiumServer` for custom environments."""

from resources_servers.gymnasium.server import GymnasiumServer

__all__ = ["GymnasiumServer"]

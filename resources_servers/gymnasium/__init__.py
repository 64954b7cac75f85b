"""Gymnasium environments, and the published base class for your own."""

from resources_servers.gymnasium.server import GymnasiumServer

__all__ = ["GymnasiumServer"]

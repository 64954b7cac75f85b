"""The settings of `ng version`, under the name that they have in the published package."""

from nemo_gym.cli.settings import VersionSettings as VersionConfig

__all__ = ["VersionConfig"]

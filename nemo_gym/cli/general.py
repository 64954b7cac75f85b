"""The settings of `ng version`, under the name that the published package has."""

from nemo_gym.cli.settings import VersionSettings as VersionConfig

__all__ = ["VersionConfig"]

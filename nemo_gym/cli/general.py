"""The settings of `ng version`, under the name that they have in release 0.7."""

from nemo_gym.cli import VersionConfig

__all__ = ["VersionConfig"]

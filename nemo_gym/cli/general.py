"""Published name of the settings of `--version`."""

from nemo_gym.cli.settings import VersionSettings as VersionConfig

__all__ = ["VersionConfig"]

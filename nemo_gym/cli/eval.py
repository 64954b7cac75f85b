"""Published name of the settings of `eval prepare`."""

from nemo_gym.cli.settings import PrepareBenchmarkSettings as PrepareBenchmarkConfig

__all__ = ["PrepareBenchmarkConfig"]

"""The settings of `ng eval prepare`, under the name that the published package has."""

from nemo_gym.cli.settings import PrepareBenchmarkSettings as PrepareBenchmarkConfig

__all__ = ["PrepareBenchmarkConfig"]

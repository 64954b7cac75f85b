"""The settings of `ng eval prepare`, under the name that they have in the published package."""

from nemo_gym.cli.settings import PrepareBenchmarkSettings as PrepareBenchmarkConfig

__all__ = ["PrepareBenchmarkConfig"]

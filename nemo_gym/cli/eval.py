"""The settings of `ng eval prepare`, under the name that they have in release 0.7."""

from nemo_gym.cli.settings import PrepareBenchmarkSettings as PrepareBenchmarkConfig

__all__ = ["PrepareBenchmarkConfig"]

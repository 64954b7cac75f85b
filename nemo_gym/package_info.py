"""Public import path of `nemo_gym.version`; re-exports only."""

from nemo_gym.version import __package_name__, __version__

__all__ = ["__package_name__", "__version__"]

"""Published name of what lives in `nemo_gym.version`."""

from nemo_gym.version import __package_name__, __version__

__all__ = ["__package_name__", "__version__"]

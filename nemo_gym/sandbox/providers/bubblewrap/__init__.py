"""Sandboxes of bubblewrap: no daemon, no images, the system of this machine read-only."""

from nemo_gym.sandbox.providers.bubblewrap.provider import BubblewrapProvider
from nemo_gym.sandbox.providers.bubblewrap.start import BubblewrapConfig

__all__ = ["BubblewrapConfig", "BubblewrapProvider"]

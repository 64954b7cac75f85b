"""Bubblewrap sandboxes: no daemon, no images, this machine's system read-only."""

from nemo_gym.sandbox.providers.bubblewrap.provider import BubblewrapProvider
from nemo_gym.sandbox.providers.bubblewrap.start import BubblewrapConfig

__all__ = ["BubblewrapConfig", "BubblewrapProvider"]

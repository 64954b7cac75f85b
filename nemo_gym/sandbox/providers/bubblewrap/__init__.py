"""Bubblewrap sandboxes: no daemon, no images, this machine's system read-only."""

from nemo_gym.sandbox.providers.bubblewrap.command import BubblewrapConfig
from nemo_gym.sandbox.providers.bubblewrap.provider import BubblewrapProvider

__all__ = ["BubblewrapConfig", "BubblewrapProvider"]

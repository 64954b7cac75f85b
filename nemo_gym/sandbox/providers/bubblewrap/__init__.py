"""Sandboxes that run with Bubblewrap, without a daemon or images. They can read this machine's system files."""

from nemo_gym.sandbox.providers.bubblewrap.command import BubblewrapConfig
from nemo_gym.sandbox.providers.bubblewrap.provider import BubblewrapProvider

__all__ = ["BubblewrapConfig", "BubblewrapProvider"]

"""The published import path of `nemo_gym.sandbox.images`."""

from nemo_gym.sandbox.images import rewrite_image

__all__ = ["rewrite_image"]

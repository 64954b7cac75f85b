"""Sandboxes as apptainer instances."""

from nemo_gym.sandbox.providers.apptainer.provider import ApptainerCreateConfig, ApptainerProvider

__all__ = ["ApptainerCreateConfig", "ApptainerProvider"]

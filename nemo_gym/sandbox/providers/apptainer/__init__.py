"""Sandboxes that run as Apptainer instances."""

from nemo_gym.sandbox.providers.apptainer.provider import ApptainerCreateConfig, ApptainerExecConfig, ApptainerProvider

__all__ = ["ApptainerCreateConfig", "ApptainerExecConfig", "ApptainerProvider"]

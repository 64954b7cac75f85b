"""Sandboxes as docker containers."""

from nemo_gym.sandbox.providers.docker.command import DockerCreateConfig
from nemo_gym.sandbox.providers.docker.provider import DockerProvider

__all__ = ["DockerCreateConfig", "DockerProvider"]

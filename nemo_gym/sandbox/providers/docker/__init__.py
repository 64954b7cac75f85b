"""Sandboxes as docker containers."""

from nemo_gym.sandbox.providers.docker.command import DockerCreateConfig, DockerExecConfig
from nemo_gym.sandbox.providers.docker.provider import DockerProvider

__all__ = ["DockerCreateConfig", "DockerExecConfig", "DockerProvider"]

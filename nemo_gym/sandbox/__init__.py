"""Sandboxes for untrusted commands, isolated from this machine and from each other."""

from nemo_gym.sandbox.api import AsyncSandbox
from nemo_gym.sandbox.blocking import Sandbox
from nemo_gym.sandbox.config import resolve_provider_config, resolve_provider_metadata
from nemo_gym.sandbox.images import rewrite_image
from nemo_gym.sandbox.providers.base import (
    ConnectableProvider,
    ExecResult,
    SandboxCreateError,
    SandboxCreateVerificationError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
)
from nemo_gym.sandbox.providers.registry import create_provider, get_provider_class, list_providers, register_provider

__all__ = [
    "AsyncSandbox", "ConnectableProvider", "ExecResult", "Sandbox", "SandboxCreateError",
    "SandboxCreateVerificationError", "SandboxEndpoint", "SandboxError", "SandboxExecResult", "SandboxHandle",
    "SandboxProvider", "SandboxResources", "SandboxSpec", "SandboxStatus", "SupportsSandboxEndpoint",
    "create_provider", "get_provider_class", "list_providers", "register_provider", "resolve_provider_config",
    "resolve_provider_metadata", "rewrite_image",
]  # fmt: skip

"""Sandboxes for untrusted commands, isolated from this machine and from each other.

Each name is loaded on first use, because graders need only the `confinement` folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_gym.lazy import lazy_names

if TYPE_CHECKING:
    from nemo_gym.sandbox.api import AsyncSandbox as AsyncSandbox
    from nemo_gym.sandbox.blocking import Sandbox as Sandbox
    from nemo_gym.sandbox.config import resolve_provider_config as resolve_provider_config
    from nemo_gym.sandbox.config import resolve_provider_metadata as resolve_provider_metadata
    from nemo_gym.sandbox.images import rewrite_image as rewrite_image
    from nemo_gym.sandbox.providers.base import ConnectableProvider as ConnectableProvider
    from nemo_gym.sandbox.providers.base import ExecResult as ExecResult
    from nemo_gym.sandbox.providers.base import SandboxCreateError as SandboxCreateError
    from nemo_gym.sandbox.providers.base import SandboxCreateVerificationError as SandboxCreateVerificationError
    from nemo_gym.sandbox.providers.base import SandboxEndpoint as SandboxEndpoint
    from nemo_gym.sandbox.providers.base import SandboxError as SandboxError
    from nemo_gym.sandbox.providers.base import SandboxExecResult as SandboxExecResult
    from nemo_gym.sandbox.providers.base import SandboxHandle as SandboxHandle
    from nemo_gym.sandbox.providers.base import SandboxProvider as SandboxProvider
    from nemo_gym.sandbox.providers.base import SandboxResources as SandboxResources
    from nemo_gym.sandbox.providers.base import SandboxSpec as SandboxSpec
    from nemo_gym.sandbox.providers.base import SandboxStatus as SandboxStatus
    from nemo_gym.sandbox.providers.base import SupportsSandboxEndpoint as SupportsSandboxEndpoint
    from nemo_gym.sandbox.providers.registry import create_provider as create_provider
    from nemo_gym.sandbox.providers.registry import get_provider_class as get_provider_class
    from nemo_gym.sandbox.providers.registry import list_providers as list_providers
    from nemo_gym.sandbox.providers.registry import register_provider as register_provider

_HOMES = {
    "AsyncSandbox": "api",
    "ConnectableProvider": "providers.base",
    "ExecResult": "providers.base",
    "Sandbox": "blocking",
    "SandboxCreateError": "providers.base",
    "SandboxCreateVerificationError": "providers.base",
    "SandboxEndpoint": "providers.base",
    "SandboxError": "providers.base",
    "SandboxExecResult": "providers.base",
    "SandboxHandle": "providers.base",
    "SandboxProvider": "providers.base",
    "SandboxResources": "providers.base",
    "SandboxSpec": "providers.base",
    "SandboxStatus": "providers.base",
    "SupportsSandboxEndpoint": "providers.base",
    "create_provider": "providers.registry",
    "get_provider_class": "providers.registry",
    "list_providers": "providers.registry",
    "register_provider": "providers.registry",
    "resolve_provider_config": "config",
    "resolve_provider_metadata": "config",
    "rewrite_image": "images",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - all of them are strings

__getattr__ = lazy_names(__name__, _HOMES)

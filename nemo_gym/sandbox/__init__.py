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
    "api": ("AsyncSandbox",),
    "blocking": ("Sandbox",),
    "config": ("resolve_provider_config", "resolve_provider_metadata"),
    "images": ("rewrite_image",),
    "providers.base": (
        "ConnectableProvider", "ExecResult", "SandboxCreateError", "SandboxCreateVerificationError", "SandboxEndpoint",
        "SandboxError", "SandboxExecResult", "SandboxHandle", "SandboxProvider", "SandboxResources", "SandboxSpec",
        "SandboxStatus", "SupportsSandboxEndpoint",
    ),
    "providers.registry": ("create_provider", "get_provider_class", "list_providers", "register_provider"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - all of them are strings

__getattr__ = lazy_names(__name__, _HOME_OF)

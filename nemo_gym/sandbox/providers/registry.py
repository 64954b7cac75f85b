"""The registry of sandbox providers by name. Other providers can be used under the name `module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from omegaconf import DictConfig, OmegaConf

from nemo_gym.errors import ConfigError, SandboxConfigError, SandboxOptionError, UnknownImplementationError
from nemo_gym.jsonl import JsonObject
from nemo_gym.sandbox.providers.base import SandboxProvider
from nemo_gym.text import did_you_mean

ProviderClass = Callable[..., SandboxProvider]

ENTRY_POINTS = "nemo_gym.sandbox_providers"
"""The group of entry points by which installed packages offer providers."""
ABSENT = ("daytona", "e2b", "ecs_fargate", "enroot", "opensandbox", "openshell")
"""Providers of release 0.7 that this package does not include. Configs may still name them."""

_known: dict[str, str | ProviderClass] = {
    "apptainer": "nemo_gym.sandbox.providers.apptainer:ApptainerProvider",
    "bubblewrap": "nemo_gym.sandbox.providers.bubblewrap:BubblewrapProvider",
    "docker": "nemo_gym.sandbox.providers.docker:DockerProvider",
    "local": "nemo_gym.sandbox.providers.bubblewrap:BubblewrapProvider",
}


class AbsentProvider:
    """A placeholder for a provider of release 0.7 that this package does not include.

    Configs with such a provider still load. Creating the provider raises `UnknownImplementationError`.
    """

    name: str

    def __init__(self, *args: object, **options: object) -> None:
        raise UnknownImplementationError(
            f"the sandbox provider '{self.name}' is not part of this package. Install a package that offers it as an "
            f"entry point of the group `{ENTRY_POINTS}`, register a class with "
            f"`register_provider('{self.name}', …, override=True)`, or choose apptainer, bubblewrap or docker."
        )


def register_provider(name: str, cls: str | ProviderClass, *, override: bool = False) -> None:
    """Register a provider, as a class or as `module:Class`, under a name."""
    if not override and name in list_providers():
        raise SandboxConfigError(
            f"a sandbox provider named '{name}' already exists; choose another name, or pass `override=True`."
        )
    _known[name] = cls


def list_providers() -> list[str]:
    """Return the names of all providers, sorted."""
    return sorted({*_known, *ABSENT, *entry_points(group=ENTRY_POINTS).names})


def is_provider(name: str) -> bool:
    """Return whether a name is one of `list_providers()` or has the form `module:Class`."""
    return _found(name) is not None


def get_provider_class(name: str) -> ProviderClass:
    """Return the class of a provider. Raise `UnknownImplementationError`, a `ValueError`, if it does not exist."""
    provider = _found(name)
    if provider is None:
        known = list_providers()
        raise UnknownImplementationError(
            f"'{name}' is not a sandbox provider.{did_you_mean(name, known)} The sandbox providers are: "
            f"{', '.join(known)}. Name your own provider as `module:Class`."
        )
    return _imported(provider) if isinstance(provider, str) else provider


def _found(name: str) -> str | ProviderClass | None:
    if name in _known or ":" in name:
        return _known.get(name, name)
    for offered in entry_points(group=ENTRY_POINTS, name=name):
        return offered.value
    return type("AbsentProvider", (AbsentProvider,), {"name": name}) if name in ABSENT else None


def _imported(provider: str) -> ProviderClass:
    module, _, class_name = provider.partition(":")
    try:
        imported: ProviderClass = getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise UnknownImplementationError(
            f"the sandbox provider '{provider}' cannot be imported: {error}. Install its package, or correct the name."
        ) from error
    return imported


def create_provider(
    config: str | Mapping[str, object], options: Mapping[str, object] | None = None, **more: object
) -> SandboxProvider:
    """Create a provider from its config block: `{name: options}`, `{provider: name, …options}`, or a name.

    Raise `ConfigError` if the provider or one of its options is unknown.
    """
    ((name, given),) = named_options(config).items()
    try:
        return get_provider_class(name)(**{**given, **(options or {}), **more})
    except ConfigError:
        raise
    except TypeError as error:
        raise SandboxOptionError(
            f"the sandbox provider '{name}' does not accept these options: {error}. Correct the options."
        ) from error


def named_options(config: str | Mapping[str, object]) -> JsonObject:
    """Return a provider's config block as `{name: options}`."""
    if isinstance(config, str):
        return {config: {}}
    block = plain_block(config)
    if isinstance(block.get("provider"), str):
        return {block.pop("provider"): block}
    if len(block) != 1:
        found = ", ".join(map(str, block)) or "nothing"
        raise SandboxConfigError(
            f"a sandbox block must have one key, the provider's name, with its options below it; found: {found}."
        )
    ((name, given),) = block.items()
    if given is not None and not isinstance(given, Mapping):
        raise SandboxConfigError(f"the options of the sandbox provider '{name}' must be a mapping.")
    return {name: dict(given or {})}


def plain_block(config: Mapping[str, object]) -> JsonObject:
    """Return a config block as a new dict, with its interpolations resolved."""
    plain = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else config
    assert isinstance(plain, Mapping)
    return {str(key): value for key, value in plain.items()}

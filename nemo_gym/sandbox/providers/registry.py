"""Providers of sandboxes by their names; any other is named as `module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.errors import ConfigError, UnknownImplementationError
from nemo_gym.sandbox.providers.base import SandboxProvider

ProviderClass = type[Any]

_known: dict[str, str | ProviderClass] = {
    "apptainer": "nemo_gym.sandbox.providers.apptainer:ApptainerProvider",
    "bubblewrap": "nemo_gym.sandbox.providers.bubblewrap:BubblewrapProvider",
    "docker": "nemo_gym.sandbox.providers.docker:DockerProvider",
}


def register_provider(name: str, provider: str | ProviderClass, *, overwrite: bool = True) -> None:
    """Let a provider be found by a name: a class, or its place as `module:Class`."""
    if not overwrite and name in _known:
        raise ConfigError(f"a provider of sandboxes is already called '{name}'; choose another name.")
    _known[name] = provider


def list_providers() -> list[str]:
    """The names of all providers, sorted."""
    return sorted(_known)


def is_provider(name: str) -> bool:
    """Whether a name stands for a provider, or is a place of one."""
    return name in _known or ":" in name


def get_provider_class(name: str) -> ProviderClass:
    """The class of a provider. Raises `UnknownImplementationError` where there is none."""
    if not is_provider(name):
        choice = did_you_mean_or_all(name, _known, "providers of sandboxes")
        raise UnknownImplementationError(
            f"no provider of sandboxes is called '{name}'.{choice} One of your own is named as `module:Class`."
        )
    provider = _known.get(name, name)
    if not isinstance(provider, str):
        return provider
    module, _, class_name = provider.partition(":")
    try:
        return cast(ProviderClass, getattr(importlib.import_module(module), class_name))
    except (ImportError, AttributeError) as error:
        raise UnknownImplementationError(f"the provider of sandboxes '{provider}' cannot be had: {error}.") from error


def create_provider(
    config: str | Mapping[str, Any], options: Mapping[str, Any] | None = None, **more: Any
) -> SandboxProvider:
    """A provider from its block of a configuration: `{name: options}`, `{provider: name, …options}`, or a name.

    Raises `ConfigError` where the provider or one of its options is unknown.
    """
    name, given = named_options(config)
    given = {**given, **(options or {}), **more}
    try:
        return cast(SandboxProvider, get_provider_class(name)(**given))
    except TypeError as error:
        raise ConfigError(f"the provider of sandboxes '{name}' does not take these options: {error}.") from error


def named_options(config: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the options of a provider's block."""
    if isinstance(config, str):
        return config, {}
    plain: Any = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else config
    block = dict(plain)
    if isinstance(block.get("provider"), str):
        return block.pop("provider"), block
    if len(block) != 1:
        found = ", ".join(map(str, block)) or "nothing"
        raise ConfigError(
            f"a block of a sandbox provider has one key, the provider's name, with its options below; this one has: "
            f"{found}."
        )
    ((name, given),) = block.items()
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"the options of the sandbox provider '{name}' have to be a mapping.")
    return str(name), dict(given or {})

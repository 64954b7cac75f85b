"""The registry of sandbox providers by name. Others are named as `module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.errors import ConfigError, UnknownImplementationError
from nemo_gym.jsonl import JsonObject
from nemo_gym.sandbox.providers.base import SandboxProvider

ProviderClass = Callable[..., SandboxProvider]

_known: dict[str, str | ProviderClass] = {
    "apptainer": "nemo_gym.sandbox.providers.apptainer:ApptainerProvider",
    "bubblewrap": "nemo_gym.sandbox.providers.bubblewrap:BubblewrapProvider",
    "docker": "nemo_gym.sandbox.providers.docker:DockerProvider",
}


def register_provider(name: str, provider: str | ProviderClass, *, overwrite: bool = True) -> None:
    """Register a provider, as a class or as `module:Class`, under a name."""
    if not overwrite and name in _known:
        raise ConfigError(f"a sandbox provider named '{name}' already exists; choose another name.")
    _known[name] = provider


def list_providers() -> list[str]:
    """Return the names of all providers, sorted."""
    return sorted(_known)


def is_provider(name: str) -> bool:
    """Return whether a name is registered or has the form `module:Class`."""
    return name in _known or ":" in name


def get_provider_class(name: str) -> ProviderClass:
    """Return the class of a provider. Raise `UnknownImplementationError` if it does not exist."""
    if not is_provider(name):
        choice = did_you_mean_or_all(name, _known, "sandbox providers")
        raise UnknownImplementationError(
            f"'{name}' is not a sandbox provider.{choice} Name your own provider as `module:Class`."
        )
    provider = _known.get(name, name)
    if not isinstance(provider, str):
        return provider
    module, _, class_name = provider.partition(":")
    try:
        imported: ProviderClass = getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise UnknownImplementationError(f"the sandbox provider '{provider}' cannot be imported: {error}.") from error
    return imported


def create_provider(
    config: str | Mapping[str, object], options: Mapping[str, object] | None = None, **more: object
) -> SandboxProvider:
    """Create a provider from its config block: `{name: options}`, `{provider: name, …options}`, or a name.

    Raise `ConfigError` if the provider or one of its options is unknown.
    """
    name, given = named_options(config)
    try:
        return get_provider_class(name)(**{**given, **(options or {}), **more})
    except TypeError as error:
        raise ConfigError(f"the sandbox provider '{name}' does not accept these options: {error}.") from error


def named_options(config: str | Mapping[str, object]) -> tuple[str, JsonObject]:
    """Return the name and the options in a provider's config block."""
    if isinstance(config, str):
        return config, {}
    block = plain_block(config)
    if isinstance(block.get("provider"), str):
        return block.pop("provider"), block
    if len(block) != 1:
        found = ", ".join(map(str, block)) or "nothing"
        raise ConfigError(
            f"a sandbox block must have one key, the provider's name, with its options below it; found: {found}."
        )
    ((name, given),) = block.items()
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"the options of the sandbox provider '{name}' must be a mapping.")
    return name, dict(given or {})


def plain_block(config: Mapping[str, object]) -> JsonObject:
    """Return a config block as a new dict, with its interpolations resolved."""
    plain = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else config
    assert isinstance(plain, Mapping)
    return {str(key): value for key, value in plain.items()}

"""Resolve a sandbox provider from a named config block, an inline block or a provider's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.published import get_global_config_dict
from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.errors import ConfigError
from nemo_gym.sandbox.providers.registry import get_provider_class, is_provider, list_providers, named_options

METADATA_KEY = "default_metadata"
"""The key of a block's labels for every sandbox, next to the provider."""
BLOCK = "sandbox"
"""The block to use if only a provider's name is given."""

Given = str | Mapping[str, Any] | None


def resolve_provider_config(sandbox_provider: Given, global_config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the provider as `{name: options}`, for `create_provider` and `AsyncSandbox`.

    A text names a top-level block of the config (`sandbox: {docker: {…}, default_metadata: {…}}`), a provider in the
    block `sandbox`, or a provider without options. None means the block `sandbox`. A mapping is such a block itself.
    `global_config` defaults to the config of this process. Raise `ConfigError` if there is no such provider.
    """
    block = _block(sandbox_provider, global_config)
    providers = {str(name): options for name, options in block.items() if name != METADATA_KEY}
    name, options = named_options(providers)
    get_provider_class(name)
    return {name: options}


def resolve_provider_metadata(
    sandbox_provider: Given, global_config: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the `default_metadata` of the provider's block, or an empty dict."""
    metadata = _block(sandbox_provider, global_config).get(METADATA_KEY) or {}
    if not isinstance(metadata, Mapping):
        raise ConfigError(f"{METADATA_KEY} of a sandbox block must be a mapping of labels, not {metadata!r}.")
    return {str(key): str(value) for key, value in metadata.items() if value is not None}


def _block(given: Given, global_config: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None:
        given = BLOCK
    if not isinstance(given, str):
        return _as_dict(given)
    config = get_global_config_dict() if global_config is None else global_config
    named = config.get(given)
    if isinstance(named, Mapping | DictConfig):
        return _as_dict(named)
    block = config.get(BLOCK)
    within = _as_dict(block) if isinstance(block, Mapping | DictConfig) else {}
    if given in within and given != METADATA_KEY:
        return {key: value for key, value in within.items() if key in (given, METADATA_KEY)}
    if is_provider(given):
        metadata = within.get(METADATA_KEY)
        return {given: {}, **({METADATA_KEY: metadata} if metadata else {})}
    blocks = [str(key) for key, value in config.items() if _names_a_provider(value)]
    choice = did_you_mean_or_all(given, [*blocks, *list_providers()], "sandbox blocks and providers")
    raise ConfigError(f"'{given}' is neither a sandbox block of the config nor a sandbox provider.{choice}")


def _names_a_provider(block: Any) -> bool:
    return isinstance(block, Mapping | DictConfig) and any(is_provider(str(key)) for key in block)


def _as_dict(block: Any) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(block, resolve=True) if isinstance(block, DictConfig) else dict(block)
    return {str(key): value for key, value in plain.items()}

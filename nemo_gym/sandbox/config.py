"""Resolve a sandbox provider from a named config block, an inline block or a provider's name."""

from __future__ import annotations

from collections.abc import Mapping

from nemo_gym.config.published import get_global_config_dict
from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.errors import ConfigError
from nemo_gym.jsonl import JsonObject
from nemo_gym.sandbox.providers.registry import (
    get_provider_class,
    is_provider,
    list_providers,
    named_options,
    plain_block,
)

METADATA_KEY = "default_metadata"
"""The key in a block, next to the provider, of labels for all its sandboxes."""
BLOCK = "sandbox"
"""The block to use if only a provider's name is given."""

Given = str | Mapping[str, object] | None


def resolve_provider_config(sandbox_provider: Given, global_config: Mapping[str, object] | None = None) -> JsonObject:
    """Return the provider as `{name: options}`, for `create_provider` and `AsyncSandbox`.

    A text names a top-level block of the config (`sandbox: {docker: {…}, default_metadata: {…}}`), a provider in the
    block `sandbox`, or a provider without options. None means the block `sandbox`. A mapping is such a block itself.
    `global_config` defaults to the config of this process. Raise `ConfigError` if there is no such provider.
    """
    block = _block(sandbox_provider, global_config)
    name, options = named_options({name: options for name, options in block.items() if name != METADATA_KEY})
    get_provider_class(name)
    return {name: options}


def resolve_provider_metadata(
    sandbox_provider: Given, global_config: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Return the `default_metadata` of the provider's block, or an empty dict."""
    metadata = _block(sandbox_provider, global_config).get(METADATA_KEY) or {}
    if not isinstance(metadata, Mapping):
        raise ConfigError(f"{METADATA_KEY} of a sandbox block must be a mapping of labels, not {metadata!r}.")
    return {str(key): str(value) for key, value in metadata.items() if value is not None}


def _block(given: Given, global_config: Mapping[str, object] | None) -> JsonObject:
    if isinstance(given, Mapping):
        return plain_block(given)
    given = BLOCK if given is None else given
    config = get_global_config_dict() if global_config is None else global_config
    named = config.get(given)
    if isinstance(named, Mapping):
        return plain_block(named)
    block = config.get(BLOCK)
    within = plain_block(block) if isinstance(block, Mapping) else {}
    if given != METADATA_KEY and (given in within or is_provider(given)):
        return {given: {}} | {key: value for key, value in within.items() if key in (given, METADATA_KEY)}
    nested = {str(name): block for name, block in config.items() if isinstance(block, Mapping)}
    blocks = [name for name, block in nested.items() if any(is_provider(str(key)) for key in block)]
    choice = did_you_mean_or_all(given, [*blocks, *list_providers()], "sandbox blocks and providers")
    raise ConfigError(f"'{given}' is neither a sandbox block of the config nor a sandbox provider.{choice}")

"""Resolve a sandbox provider that is given as the name of a config block, the name of a provider, or a mapping."""

from __future__ import annotations

from collections.abc import Mapping

from nemo_gym.config.view import own_view
from nemo_gym.errors import SandboxConfigError
from nemo_gym.jsonl import JsonObject
from nemo_gym.sandbox.providers.registry import is_provider, list_providers, named_options, plain_block
from nemo_gym.text import did_you_mean_or_all

BLOCK = "sandbox"
"""The name of the block to use if only a provider's name is given."""

Given = str | Mapping[str, object]


def resolve_provider_config(ref_or_mapping: Given, named_configs: Mapping[str, object] | None = None) -> JsonObject:
    """Return the provider as `{name: options}`, for `create_provider` and `AsyncSandbox`.

    A string names a top-level block of the config (`sandbox: {docker: {…}, default_metadata: {…}}`), a provider in the
    block `sandbox`, or a provider without options. A mapping is such a block itself. `named_configs` defaults to the
    config of this process.

    Raise `SandboxConfigError`, a `ValueError`, if the block is missing. Do not check whether its provider can be used:
    that is only known when a sandbox is created.
    """
    block = _block(ref_or_mapping, named_configs)
    return named_options({name: options for name, options in block.items() if name != "default_metadata"})


def resolve_provider_metadata(
    ref_or_mapping: Given, named_configs: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Return the `default_metadata` of the provider's block, or an empty dict."""
    metadata = _block(ref_or_mapping, named_configs).get("default_metadata") or {}
    if not isinstance(metadata, Mapping):
        raise SandboxConfigError(f"default_metadata of a sandbox block must be a mapping of labels, not {metadata!r}.")
    return {str(key): str(value) for key, value in metadata.items() if value is not None}


def _block(given: Given, named_configs: Mapping[str, object] | None) -> JsonObject:
    if isinstance(given, Mapping):
        return plain_block(given)
    if not isinstance(given, str):
        raise TypeError(f"a sandbox provider must be the name of a config block or a mapping, not {given!r}")
    if not given.strip():
        raise SandboxConfigError(
            "the name of the sandbox block is empty. Name a block of the config, such as sandbox."
        )
    config = own_view() if named_configs is None else named_configs
    named = config.get(given)
    if isinstance(named, Mapping):
        return plain_block(named)
    block = config.get(BLOCK)
    within = plain_block(block) if isinstance(block, Mapping) else {}
    if given != "default_metadata" and (given in within or is_provider(given)):
        return {given: {}} | {key: value for key, value in within.items() if key in (given, "default_metadata")}
    known = list_providers()
    blocks = [str(name) for name, block in config.items() if isinstance(block, Mapping) and {*block} & {*known}]
    choice = did_you_mean_or_all(given, [*blocks, *known], "sandbox blocks and providers")
    raise SandboxConfigError(f"'{given}' is neither a sandbox block of the config nor a sandbox provider.{choice}")

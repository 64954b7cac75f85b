"""Sandbox providers, one folder each, found by name."""

from nemo_gym.sandbox.providers.registry import create_provider, get_provider_class, list_providers, register_provider

__all__ = ["create_provider", "get_provider_class", "list_providers", "register_provider"]

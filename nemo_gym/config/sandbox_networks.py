"""Settings with which programs in sandboxes can call the servers of a run on this machine's loopback addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nemo_gym.config.hosts import is_any_address, is_loopback

_SWITCHES = {"has_network", "allow_unconfined"}
_TRUE = {"true", "yes", "on", "1"}
_ARGUMENTS = {"run_args", "extra_run_args", "extra_start_args", "extra_args"}
_HOST_NETWORK = re.compile(r"--net(?:work)?[= ]host\b|--share-net\b")


def networked_sandbox(config: object, path: str = "") -> str | None:
    """Return the first setting that lets programs in sandboxes reach loopback, such as `sandbox.docker.network: host`.

    Look in all blocks, because any server may name a sandbox provider with its options.
    """
    if isinstance(config, Mapping):
        children: Iterable[tuple[object, object]] = config.items()
    elif isinstance(config, list | tuple):
        children = enumerate(config)
    else:
        return None
    for key, value in children:
        place = f"{path}.{key}" if path else str(key)
        if _reaches_loopback(key, value):
            return f"{place}: {str(value).lower() if isinstance(value, bool) else value}"
        if found := networked_sandbox(value, place):
            return found
    return None


def _reaches_loopback(key: object, value: object) -> bool:
    if key in _SWITCHES:
        return str(value).lower() in _TRUE
    if key == "network":
        return value == "host"
    if key == "gateway_host":
        # Only a sandbox that shares this machine's network reaches a gateway on loopback.
        return isinstance(value, str) and (is_any_address(value) or is_loopback(value))
    if key in _ARGUMENTS:
        words = value if isinstance(value, list | tuple) else [value]
        return bool(_HOST_NETWORK.search(" ".join(map(str, words))))
    return False

"""Addresses that a caller can use for servers that listen on all addresses of their machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from omegaconf import OmegaConf
from starlette.requests import Request

from nemo_gym.config.hosts import is_any_address, name_in_host_header
from nemo_gym.config.settings import SERVER_TYPES

LOOPBACK = "127.0.0.1"
Joined = tuple[tuple[str, tuple[str, int]], ...]
"""The host and port of servers on other machines, after their names."""


def host_reached(request: Request) -> str:
    """Return the host by which the caller reached this server, from the `Host` header or else from the connection."""
    local = (request.scope.get("server") or ("",))[0]
    for host in (name_in_host_header(request.headers.get("host", "")), _without_mapping(local)):
        # Skip the address of a unix socket, because it is a path and not a host.
        if host and "/" not in host and not is_any_address(host):
            return host
    return LOOPBACK


@lru_cache(maxsize=8)
def reachable_config(yaml: str, host: str, joined: Joined = ()) -> str:
    """Return a configuration with addresses that a caller can use. Servers that listen on all addresses get this host.

    `joined` contains the host and port of servers by name. They replace the values in the configuration.
    """
    config = OmegaConf.to_container(OmegaConf.create(yaml))
    assert isinstance(config, dict)
    addresses = dict(joined)
    changed = False
    for name, block in _addresses_in(config):
        if name in addresses:
            block["host"], block["port"] = addresses[name]
            changed = True
        elif is_any_address(str(block.get("host"))):
            block["host"] = host
            changed = True
    return OmegaConf.to_yaml(OmegaConf.create(config)) if changed else yaml


def _addresses_in(config: dict[Any, Any]) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield each configuration block that can contain a server's address, after the server's name."""
    for key, block in config.items():
        if isinstance(block, dict):
            if key == "head_server":
                yield key, block
            for tier in SERVER_TYPES:
                implementations = block.get(tier)
                if isinstance(implementations, dict):
                    yield from ((str(key), each) for each in implementations.values() if isinstance(each, dict))


def _without_mapping(address: str) -> str:
    """Return an IPv4-mapped IPv6 address such as `::ffff:10.0.0.1` as IPv4, and any other address unchanged."""
    try:
        mapped = getattr(ipaddress.ip_address(address), "ipv4_mapped", None)
    except ValueError:
        return address
    return str(mapped) if mapped else address

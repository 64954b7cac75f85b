"""Addresses that a caller can use for servers that listen on all addresses of their machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from omegaconf import OmegaConf
from starlette.requests import Request

from nemo_gym.calls.client import HEAD_SERVER_KEY
from nemo_gym.config.access import is_any_address
from nemo_gym.config.process import ServerInstance
from nemo_gym.config.settings import SERVER_TYPES, http_url

LOOPBACK = "127.0.0.1"


def host_reached(request: Request) -> str:
    """Return the host by which the caller reached this server: that of its `Host` header, else of its connection."""
    local = (request.scope.get("server") or ("",))[0]
    for host in (_name_in(request.headers.get("host", "")), _without_mapping(local)):
        # A unix socket's address is a path.
        if host and "/" not in host and not is_any_address(host):
            return host
    return LOOPBACK


def reachable(instance: ServerInstance, host: str) -> ServerInstance:
    """Return an instance with this host in its address if it listens on all addresses."""
    if not is_any_address(instance.host):
        return instance
    return instance.model_copy(update={"host": host, "url": http_url(host, instance.port)})


@lru_cache(maxsize=8)
def reachable_config(yaml: str, host: str) -> str:
    """Return a configuration with this host for all servers in it that listen on all addresses."""
    config = OmegaConf.to_container(OmegaConf.create(yaml))
    assert isinstance(config, dict)
    unreachable = [block for block in _addresses_in(config) if is_any_address(str(block.get("host")))]
    for block in unreachable:
        block["host"] = host
    return OmegaConf.to_yaml(OmegaConf.create(config)) if unreachable else yaml


def _addresses_in(config: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    """Yield the blocks of a configuration that may have an address."""
    for key, block in config.items():
        if isinstance(block, dict):
            if key == HEAD_SERVER_KEY:
                yield block
            for tier in SERVER_TYPES:
                implementations = block.get(tier)
                if isinstance(implementations, dict):
                    yield from (each for each in implementations.values() if isinstance(each, dict))


def _name_in(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _without_mapping(address: str) -> str:
    """Return an IPv4 address for the IPv6 form that a socket for both has of it."""
    try:
        mapped = getattr(ipaddress.ip_address(address), "ipv4_mapped", None)
    except ValueError:
        return address
    return str(mapped) if mapped else address

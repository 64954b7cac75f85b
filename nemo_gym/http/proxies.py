"""The proxy for an external address, by `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


def proxy_of(url: SplitResult) -> str | None:
    """Return the proxy that the environment sets for this address, or None. Loopback addresses need none."""
    host = url.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(url.scheme)
    if proxy is None or host in THIS_MACHINE or proxy_bypass(host) or _is_in_network(host, proxies.get("no", "")):
        return None
    return proxy


def _is_in_network(host: str, exceptions: str) -> bool:
    """Return whether `NO_PROXY` has a network with this address, such as `192.0.2.0/24`."""
    with suppress(ValueError):
        address = ip_address(host)
        for each in exceptions.split(","):
            with suppress(ValueError):
                if "/" in each and address in ip_network(each.strip(), strict=False):
                    return True
    return False

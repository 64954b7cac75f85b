"""Hosts: which ones only this machine can reach, and which ones lead to it."""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache
from pathlib import Path


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_any_address(host: str) -> bool:
    """Return whether a server with this host listens on all addresses, so that no client can call it by the host."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def loopback_of(host: str) -> str:
    """Return a host by which its own machine can call it: loopback instead of 0.0.0.0 and ::."""
    if not is_any_address(host):
        return host
    return "::1" if ":" in host else "127.0.0.1"


def leads_to(host: str, listening: str) -> bool:
    """Return whether a connection to `host` reaches a local server that listens on `listening`."""
    if host == listening:
        return True
    wanted = _addresses(host)
    if any(ipaddress.ip_address(address).is_unspecified for address in _addresses(listening)):
        return any(map(is_of_this_machine, wanted))
    return not wanted.isdisjoint(_addresses(listening))


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    # A link-local IPv6 address may end with its interface, as in fe80::1%eth0.
    return {str(address[0]).partition("%")[0] for *_, address in found}


def is_of_this_machine(address: str) -> bool:
    """Return whether an IP address is one of this machine's; False for a name."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if ip.is_loopback:
        return True
    with socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends no packet: the kernel only selects a source address, which equals the target if it is local.
            probe.connect((address, 9))
        except OSError:
            return False
        return str(probe.getsockname()[0]).partition("%")[0] == address


def outward(host: str) -> str:
    """Return a host by which other machines may reach this one: for 0.0.0.0 and ::, the address of its default route.

    Without a route, it is the machine's name.
    """
    if not is_any_address(host):
        return host
    is_ipv6 = ":" in host
    with socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A documentation address. This sends no packet: the kernel only selects a source address.
            probe.connect(("2001:db8::1" if is_ipv6 else "192.0.2.1", 9))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


@lru_cache(maxsize=1)
def this_machine() -> str:
    """Return an id of this machine's network: processes with the same one may call each other over unix sockets.

    Containers that share a folder of sockets, but not the network, are machines of their own.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return ""

"""Host addresses: loopback addresses, wildcard addresses, and addresses of this machine."""

from __future__ import annotations

import ipaddress
import re
import socket
from functools import lru_cache
from pathlib import Path

DISCARD_PORT = 9
_HOST_HEADER = re.compile(r"(?P<name>\[[\da-fA-F:.]+(?:%25[\w.~-]+)?\]|[\w.~-]+)(?::\d*)?", re.ASCII)


@lru_cache(maxsize=1024)
def name_in_host_header(header: str) -> str:
    """Return the name in a `Host` header, in small letters and without the port. Return "" if the header is invalid.

    Do not use `urlsplit`: for `evil.example@127.0.0.1` it returns a name that the caller did not call.
    """
    found = _HOST_HEADER.fullmatch(header)
    return found["name"].strip("[]").rstrip(".").lower() if found else ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_any_address(host: str) -> bool:
    """Return whether the host means all addresses of a machine (0.0.0.0 or ::). Clients must use another host."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def loopback_of(host: str) -> str:
    """Return the host by which processes on the same machine can call a server: loopback for 0.0.0.0 and ::."""
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
    # Remove the interface name at the end of a link-local IPv6 address, as in fe80::1%eth0.
    return {str(address[0]).partition("%")[0] for *_, address in found}


def is_of_this_machine(address: str) -> bool:
    """Return whether an IP address belongs to this machine. Return False for a host name."""
    try:
        # The address belongs to this machine if packets to the address would also have it as their source address.
        return ipaddress.ip_address(address).is_loopback or source_towards(address).partition("%")[0] == address
    except (ValueError, OSError):
        return False


def outward(host: str) -> str:
    """Return a host by which other machines may reach this machine.

    For 0.0.0.0 and ::, return the source address of the default route, or the machine's name if there is no route.
    """
    if not is_any_address(host):
        return host
    try:
        # Use addresses that are reserved for documentation, because only the default route leads to them.
        return source_towards("2001:db8::1" if ":" in host else "192.0.2.1")
    except OSError:
        return socket.gethostname()


def source_towards(host: str) -> str:
    """Return the address from which this machine reaches a host.

    Raise `OSError` if there is no route to the host, or if its name cannot be resolved.
    """
    kind, _, _, _, address = socket.getaddrinfo(host, DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        # For a UDP socket, connecting does not send a packet. The kernel only selects the source address.
        probe.connect(address)
        return str(probe.getsockname()[0])


@lru_cache(maxsize=1)
def this_machine() -> str:
    """Return an id of this machine and its network namespace, or an empty string if the id is unknown.

    Processes with the same id may call each other over unix sockets. Containers with separate networks have different
    ids, even if they share the folder of the sockets.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return ""

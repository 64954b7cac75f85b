"""Protection from web pages that call a server through their visitor's browser.

A page cannot read the run's token, but a server on a loopback address usually requires no token. Therefore, the
headers `Host`, `Origin` and `Sec-Fetch-Site` are checked as well, because a page cannot set them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from starlette.types import Scope

from nemo_gym.config.hosts import is_loopback, name_in_host_header


class BrowserCheck:
    """A check that rejects calls from web pages of other sites."""

    def __init__(self, server: str, host: str, allowed_hosts: Collection[str] = ()) -> None:
        """Check calls to a server that listens on `host`. `allowed_hosts` are its other names and trusted hosts."""
        self.server = server
        self._is_local = is_loopback(host)
        self._allowed = frozenset(allowed_hosts)

    def objection(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
        """Return why a call must be rejected; None if it may pass."""
        host = headers.get(b"host", b"")
        origin = headers.get(b"origin")
        if origin is None and scope.get("client") is None and b"sec-fetch-site" not in headers:
            # Accept this call. It is not from a browser, but from a process on a unix socket or from this process.
            return None
        if origin is not None and not self._is_own_site(_name_in(origin.partition(b"://")[2]), _name_in(host)):
            return f"{self.server} does not accept calls from web pages of {_shown(origin)}. {_ADVICE}"
        if origin is None and headers.get(b"sec-fetch-site") == b"cross-site":
            return f"{self.server} does not accept calls from web pages of other sites. {_ADVICE}"
        if self._is_local and host and _is_over_loopback(scope) and not self._is_own_name(_name_in(host)):
            # Reject foreign host names. With DNS rebinding, they resolve to this machine and pass as the same site.
            return (
                f"{self.server} listens on a loopback address and does not accept calls to the host name "
                f"{_shown(host)}. {_ADVICE}"
            )
        return None

    def _is_own_name(self, name: str) -> bool:
        return _is_of_this_machine(name) or name in self._allowed

    def _is_own_site(self, name: str, called: str) -> bool:
        if name in self._allowed:
            return True
        return name == called != "" or (_is_of_this_machine(name) and _is_of_this_machine(called))


_ADVICE = "Add the host to allowed_hosts if this is intended."


def _is_over_loopback(scope: Scope) -> bool:
    """Return whether a call arrived at a loopback address, and not on a unix socket or in this process."""
    server = scope.get("server")
    return server is not None and scope.get("client") is not None and _is_of_this_machine(server[0])


@lru_cache(maxsize=1024)
def _is_of_this_machine(name: str) -> bool:
    # Include all names below localhost, because browsers resolve them to this machine.
    return is_loopback(name) or name.endswith(".localhost")


def _name_in(host: bytes) -> str:
    return name_in_host_header(host.decode("latin-1"))


def _shown(header: bytes) -> str:
    return repr(header[:200].decode("latin-1"))

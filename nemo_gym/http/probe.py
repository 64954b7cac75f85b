"""Check whether a model endpoint is up."""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.error
import urllib.request
from enum import StrEnum
from http.client import HTTPException
from urllib.parse import urlsplit


class Trouble(StrEnum):
    """The reason why an endpoint does not answer."""

    UNKNOWN_NAME = "the name does not resolve"
    REFUSED = "connection refused"
    UNTRUSTED = "its TLS certificate is not trusted"
    SILENT = "no answer"


def trouble_of(url: str, timeout_s: float, path: str = "/models") -> Trouble | None:
    """Return why `GET <url><path>` gets no reply, or None if it gets a reply with any status.

    The name resolution and each socket operation can block for up to `timeout_s`.
    """
    if not resolves(url, timeout_s):
        return Trouble.UNKNOWN_NAME
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}{path}", timeout=timeout_s):
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError, HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ConnectionRefusedError):
            return Trouble.REFUSED
        return Trouble.UNTRUSTED if isinstance(cause, ssl.SSLError) else Trouble.SILENT


def endpoint_answers(url: str, timeout_s: float) -> bool:
    """Return whether `GET /models` below a base URL gets a reply with any status.

    The name resolution and each socket operation can block for up to `timeout_s`.
    """
    return trouble_of(url, timeout_s) is None


def resolves(url: str, timeout_s: float) -> bool:
    """Return whether the host of a URL resolves within the timeout. Return True if a proxy resolves the name."""
    host = urlsplit(url).hostname
    if not host or urllib.request.getproxies().get(urlsplit(url).scheme):
        return True
    resolved = threading.Event()

    def resolve() -> None:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            return
        resolved.set()

    # Resolve in a thread, because a name server that does not answer would block for longer than the timeout.
    resolving = threading.Thread(target=resolve, name=f"resolve {host}", daemon=True)
    resolving.start()
    resolving.join(timeout_s)
    return resolved.is_set()

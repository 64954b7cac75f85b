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

from nemo_gym.http.proxies import proxy_of
from nemo_gym.http.tls import NOT_TLS, has_unknown_issuer

OF_PROXIES = (407, 502, 503, 504)
"""The statuses with which a proxy answers if it does not reach the endpoint."""


class Trouble(StrEnum):
    """The reason why an endpoint does not answer."""

    UNKNOWN_NAME = "the name does not resolve"
    REFUSED = "connection refused"
    UNTRUSTED = "no authority that this machine trusts issued its TLS certificate"
    INVALID = "its TLS certificate is not valid, for example because it has expired or is for another name"
    PLAIN = "it answers without TLS, so its address begins with http://"
    HANDSHAKE = "its TLS handshake fails"
    PROXY = "the proxy of HTTP_PROXY or HTTPS_PROXY does not reach it; NO_PROXY excludes addresses"
    SILENT = "no answer"

    @property
    def advice(self) -> str:
        """What to do, besides correcting the address."""
        if self is Trouble.UNTRUSTED:
            return "Set the environment variable SSL_CERT_FILE to the file of its authority"
        return "Start it"


def trouble_of(url: str, timeout_s: float, path: str = "/models") -> Trouble | None:
    """Return why `GET <url><path>` gets no reply, or None if it gets a reply with any status.

    The name resolution and each socket operation can block for up to `timeout_s`.
    """
    if not resolves(url, timeout_s):
        return Trouble.UNKNOWN_NAME
    parts = urlsplit(url)
    # Use the proxy that calls of rollouts use, and none otherwise.
    proxy = proxy_of(parts)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({parts.scheme: proxy} if proxy else {}))
    try:
        with opener.open(f"{url.rstrip('/')}{path}", timeout=timeout_s):
            return None
    except urllib.error.HTTPError as error:
        return Trouble.PROXY if proxy and error.code in OF_PROXIES else None
    except (OSError, ValueError, HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if proxy and not isinstance(cause, ssl.SSLError | TimeoutError):
            return Trouble.PROXY
        if isinstance(cause, ConnectionRefusedError):
            return Trouble.REFUSED
        return _trouble_with_tls(cause) if isinstance(cause, ssl.SSLError) else Trouble.SILENT


def _trouble_with_tls(error: ssl.SSLError) -> Trouble:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Trouble.UNTRUSTED if has_unknown_issuer(error) else Trouble.INVALID
    if isinstance(error, ssl.SSLEOFError):
        return Trouble.SILENT
    return Trouble.PLAIN if error.reason in NOT_TLS else Trouble.HANDSHAKE


def endpoint_answers(url: str, timeout_s: float) -> bool:
    """Return whether `GET /models` below a base URL gets a reply with any status.

    The name resolution and each socket operation can block for up to `timeout_s`.
    """
    return trouble_of(url, timeout_s) is None


def resolves(url: str, timeout_s: float) -> bool:
    """Return whether the host of a URL resolves within the timeout. Return True if a proxy resolves the name."""
    host = urlsplit(url).hostname
    if not host or proxy_of(urlsplit(url)):
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

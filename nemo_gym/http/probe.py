"""Check whether a model endpoint is up."""

from __future__ import annotations

import socket
import ssl
import threading
from enum import StrEnum
from urllib.parse import urlsplit

from nemo_gym.config.tls import SYSTEM, Tls
from nemo_gym.http.proxies import proxy_of
from nemo_gym.http.tls import NOT_TLS, client_context, has_unknown_issuer, os_error_in

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
    # Imported here, because the import takes 0.1 s.
    import httpx

    parts = urlsplit(url)
    # Use the proxy that calls of rollouts use, and none otherwise.
    proxy = proxy_of(parts)
    verified = client_context(Tls(ca=SYSTEM)) if parts.scheme == "https" else False
    try:
        with (
            httpx.Client(proxy=proxy, timeout=timeout_s, trust_env=False, verify=verified) as client,
            client.stream("GET", f"{url.rstrip('/')}{path}") as reply,
        ):
            return Trouble.PROXY if proxy and reply.status_code in OF_PROXIES else None
    # httpx raises the last two for a proxy whose scheme it does not support.
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
        cause = os_error_in(error)
        if isinstance(cause, ssl.SSLError):
            return _trouble_with_tls(cause)
        if proxy and not isinstance(error, httpx.TimeoutException):
            return Trouble.PROXY
        return Trouble.REFUSED if isinstance(cause, ConnectionRefusedError) else Trouble.SILENT


def _trouble_with_tls(error: ssl.SSLError) -> Trouble:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Trouble.UNTRUSTED if has_unknown_issuer(error) else Trouble.INVALID
    if isinstance(error, ssl.SSLEOFError):
        return Trouble.SILENT
    return Trouble.PLAIN if error.reason in NOT_TLS else Trouble.HANDSHAKE


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

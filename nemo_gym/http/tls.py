"""TLS between the servers of a run: SSL contexts for clients and servers, and readable errors."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from functools import lru_cache

from nemo_gym.config.tls import STRICT_ADVICE, STRICT_FAULTS, SYSTEM, Tls

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 2.0
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
"""OpenSSL's reasons for errors caused by a peer that does not use TLS."""


@lru_cache(maxsize=16)
def client_context(tls: Tls) -> ssl.SSLContext:
    """Return the SSL context for clients, which verify a server's certificate and its name."""
    return ssl.create_default_context(cafile=None if tls.ca == SYSTEM else tls.ca)


def server_context(tls: Tls) -> ssl.SSLContext:
    """Return the SSL context for servers. A renewed certificate is used from the next handshake on."""
    return _Certificate(tls).context


class _Certificate:
    """A certificate on disk, and the SSL context made from its current version."""

    def __init__(self, tls: Tls) -> None:
        self._files = (str(tls.cert), str(tls.key))
        self._version = self._version_on_disk()
        self.context = self._read()
        # Load a renewed certificate in this callback. OpenSSL calls it at each handshake, even if the client does not
        # send a server name.
        self.context.sni_callback = self._use_current
        self._current = self.context

    def _use_current(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        try:
            version = self._version_on_disk()
            if version != self._version:
                # Certificate and key are not replaced at the same moment. Until they match, use the previous pair.
                self._current, self._version = self._read(), version
        except OSError as error:
            logger.warning("the renewed certificate %s cannot be used yet: %s", self._files[0], error)
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        # Issue no session tickets, because nemo_gym's clients keep their connections instead of resuming sessions.
        context.num_tickets = 0
        return context

    def _version_on_disk(self) -> list[tuple[int, int]]:
        found = [os.stat(file) for file in self._files]
        return [(each.st_mtime_ns, each.st_ino) for each in found]


def reason_of(error: ssl.SSLError, tls: Tls | None) -> str:
    """Return the message for a caller whose TLS handshake failed: the reason and what to do.

    `tls` is None if the server is not one of nemo_gym's.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is rejected: {_problem_of_certificate(error, tls)}"
    if error.reason in NOT_TLS and tls is None:
        return "the server does not speak TLS. Begin its address with http:// instead of https://"
    if error.reason in NOT_TLS:
        return "the server does not speak TLS, but this caller has tls. Set tls on all machines, or on none"
    return f"the TLS handshake failed ({error.reason or error})"


def has_unknown_issuer(error: ssl.SSLCertVerificationError) -> bool:
    """Return whether a certificate is rejected only because its authority is not trusted."""
    return "local issuer" in error.verify_message or "self-signed" in error.verify_message


def _problem_of_certificate(error: ssl.SSLCertVerificationError, tls: Tls | None) -> str:
    reason = error.verify_message
    if "mismatch" in reason:
        name = reason.rstrip(".").rpartition(" for ")[2]
        return (
            f"it is not valid for {name}. Call the server by a name in the certificate, or issue a certificate for "
            f"{name}"
        )
    if has_unknown_issuer(error):
        source = "that this machine trusts" if tls is None or tls.ca == SYSTEM else f"in {tls.ca}"
        setting = "tls.ca" if tls else "the environment variable SSL_CERT_FILE"
        return f"no authority {source} issued it. Set {setting} to the file of its authority"
    if "expired" in reason:
        return "it has expired. Renew it on the server's machine"
    return f"{reason}. {STRICT_ADVICE}" if error.verify_code in STRICT_FAULTS else reason


def os_error_in(error: BaseException | None) -> OSError | None:
    """Return the first `OSError`, such as an `ssl.SSLError`, in an exception's chain of causes, or None."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def cause_of(error: Exception) -> str:
    """Return why a connection to a server outside the run failed, and what to do if TLS is the cause."""
    # Begin with the cause, because aiohttp's own errors are SSL errors, too, but without a reason.
    refused = os_error_in(error.__cause__)
    return reason_of(refused, None) if isinstance(refused, ssl.SSLError) else str(error)


def speaks_tls(host: str, port: int) -> bool:
    """Return whether a server answers a TLS handshake, with any certificate. Block for two seconds at most."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), PROBE_TIMEOUT_S) as sock, context.wrap_socket(sock):
            return True
    except OSError:
        return False


def needs_tls(url: str) -> str:
    """Return the message for a caller that has no TLS settings but calls a server with TLS."""
    return (
        f"the server at {url} speaks TLS. Pass --tls.ca FILE (in Python: ca=FILE) with the authority that issued its "
        f"certificate, or --tls.ca {SYSTEM} if this machine trusts it already"
    )

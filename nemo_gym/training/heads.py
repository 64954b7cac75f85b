"""Find the head server of a run by its URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from nemo_gym.calls.running import tls_for
from nemo_gym.config.models import HeadConfig
from nemo_gym.config.tls import SYSTEM, Tls
from nemo_gym.errors import UsageError
from nemo_gym.http.tls import client_context

DEFAULT_PORTS = {"http": 80, "https": 443}


def head_at(url: str, ca: str | Path | None = None) -> HeadConfig:
    """Return the head server at a URL that `ng_run` has printed. Raise `UsageError` if the URL or `ca` is invalid.

    `ca` is the file of the CA certificate, or `system` for the trust store of the operating system. The default is the
    run's own CA if the run is on this machine, otherwise `system`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        host, port = None, 0
    if not host or not port or parts.scheme not in DEFAULT_PORTS:
        raise UsageError(f"{url!r} is not the address of a head server, such as http://127.0.0.1:11000.")
    if parts.scheme == "http":
        return HeadConfig(host=host, port=port)
    if ca is None:
        return HeadConfig(host=host, port=port, tls=tls_for(host, port) or Tls(ca=SYSTEM))
    tls = Tls(ca=SYSTEM if ca == SYSTEM else str(Path(ca).absolute()))
    try:
        client_context(tls)
    except OSError as error:
        raise UsageError(
            f"ca={str(ca)!r}: cannot be read as certificates in PEM format ({error.strerror or error}). Name the file "
            f"of the CA that issued the run's certificate, or '{SYSTEM}'."
        ) from None
    return HeadConfig(host=host, port=port, tls=tls)

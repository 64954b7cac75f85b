"""One blocking call to a server of a run, for code that cannot await."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from nemo_gym.config.tls import SYSTEM, Tls
from nemo_gym.errors import ServerCallError
from nemo_gym.http.reply import NotTrusted, Reply, ReplyTimedOut
from nemo_gym.http.tls import client_context, os_error_in, reason_of


def ask(
    method: str,
    url: str,
    *,
    timeout_s: float,
    tls: Tls | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    reads_body: bool = True,
) -> Reply:
    """Send a request and return the reply, with any status.

    `timeout_s` limits the connection attempt and each wait for the next bytes. If there is no reply, raise
    `ServerCallError`. Its message is only the reason, and its cause is the operating system's error, if there is one.
    """
    # Imported here, because the import takes 0.1 s.
    import httpx

    try:
        to = httpx.URL(url)
        # Load certificates only for TLS, because loading takes longer than the request.
        verified = client_context(tls or Tls(ca=SYSTEM)) if to.scheme == "https" else False
        # Set the name for SNI, because httpx also verifies the certificate against this name.
        named = {"sni_hostname": tls.name_at(to.host)} if tls else {}
        with (
            httpx.Client(timeout=timeout_s, trust_env=False, verify=verified) as client,
            client.stream(method, to, headers=headers, content=body, extensions=named) as answer,
        ):
            content = answer.read() if reads_body else b""
            return Reply(answer.status_code, answer.headers.raw, content, method, url)
    except httpx.TimeoutException:
        raise ReplyTimedOut(f"no reply within {timeout_s:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        cause = os_error_in(error)
        if isinstance(cause, ssl.SSLError):
            raise NotTrusted(reason_of(cause, tls)) from cause
        raise ServerCallError(str(error).strip() or type(error).__name__) from cause

"""Follow redirects without sending one server's headers to another server."""

from __future__ import annotations

from collections.abc import Mapping

import httpx


def client_of(url: str, headers: Mapping[str, str], timeout: httpx.Timeout | float) -> httpx.Client:
    """Return a client that follows redirects, but sends `headers` only to the server of `url`."""
    home = httpx.URL(url)

    def keep_private(request: httpx.Request) -> None:
        if not _is_of_server(request.url, home):
            for name in headers:
                request.headers.pop(name, None)

    # Remove the headers in a hook, because httpx itself removes only Authorization.
    hooks = {"request": [keep_private]}
    return httpx.Client(headers=headers, timeout=timeout, follow_redirects=True, event_hooks=hooks)


def _is_of_server(url: httpx.URL, home: httpx.URL) -> bool:
    """Return whether `url` has the same origin as `home`, or differs only by an upgrade from HTTP to HTTPS."""
    is_upgrade = (home.scheme, home.port, url.scheme, url.port) == ("http", None, "https", None)
    return url.host == home.host and (is_upgrade or (url.scheme, url.port) == (home.scheme, home.port))

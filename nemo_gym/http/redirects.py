"""Follow redirects without sending the headers for one server to another one."""

from __future__ import annotations

from collections.abc import Mapping

import httpx


def client_of(url: str, headers: Mapping[str, str], timeout: httpx.Timeout | float) -> httpx.Client:
    """Return a client that follows redirects, and sends these headers to the server of this address only."""
    home = httpx.URL(url)

    def keep_private(request: httpx.Request) -> None:
        if not _is_of_server(request.url, home):
            for name in headers:
                request.headers.pop(name, None)

    # httpx itself removes no header but Authorization.
    hooks = {"request": [keep_private]}
    return httpx.Client(headers=headers, timeout=timeout, follow_redirects=True, event_hooks=hooks)


def _is_of_server(url: httpx.URL, home: httpx.URL) -> bool:
    """Return whether the addresses have the same origin, or differ only in that `url` is encrypted."""
    is_upgrade = (home.scheme, home.port, url.scheme, url.port) == ("http", None, "https", None)
    return url.host == home.host and (is_upgrade or (url.scheme, url.port) == (home.scheme, home.port))

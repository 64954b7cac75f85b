"""Access to the viewer. The printed URL has a one-time token, which the browser exchanges for a session cookie."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.config.hosts import is_any_address, is_loopback, name_in_host_header
from nemo_gym.config.settings import http_url

STYLE = (
    "body{max-width:60ch;margin:15vh auto;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif}"
    "h1{font-size:1.25rem}code{font-family:ui-monospace,monospace;overflow-wrap:anywhere}"
)
"""The style of the pages that a browser without a session gets, which cannot load the style sheet of the others."""


def hash_of(text: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {hash_of(STYLE)}; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
SAFE_METHODS = {"GET", "HEAD"}

NO_SESSION = "This browser is not connected: open the address that 'ng view' printed in its terminal."
USED_TOKEN = "This address was used before: open the newest one that 'ng view' printed in its terminal."


class Access:
    """The viewer's access rules: a token for the next browser, and a session for each browser that used a token."""

    def __init__(self, host: str, port: int, on_used: Callable[[str], None]) -> None:
        """Call `on_used` with a new URL each time a browser has used the previous URL."""
        self._host = host.lower()
        self._port = port
        self._on_used = on_used
        self._token = secrets.token_urlsafe(32)
        self._sessions: set[str] = set()
        # Browsers share cookies between all ports of a host, so the cookie of each viewer needs its own name.
        self._cookie = f"ng_view_{port}"
        self._is_wildcard = is_any_address(self._host)

    @property
    def address(self) -> str:
        """The URL with the current token. Only one browser can use this token."""
        host = socket.gethostname() if self._is_wildcard else self._host
        return f"{http_url(host, self._port)}/?token={self._token}"

    def answer(self, request: Request) -> Response | None:
        """Return the response to a request that has a token or lacks access. Return None if the request may pass."""
        if not self._is_own_name(name_in_host_header(request.headers.get("host", ""))):
            return _forbidden(request, "The viewer does not have this host name: open the address that it printed.")
        is_known = request.cookies.get(self._cookie, "") in self._sessions
        token = request.query_params.get("token")
        # Link previews send HEAD, which must not use up the token.
        if token is not None and request.method == "GET" and request.scope["path"] == "/":
            return self._exchange(request, token, is_known=is_known)
        if not is_known:
            return _forbidden(request, NO_SESSION)
        if request.method not in SAFE_METHODS and not _is_from_own_page(request):
            return _forbidden(request, "The viewer accepts changes only from its own pages.")
        return None

    def _exchange(self, request: Request, token: str, *, is_known: bool) -> Response:
        is_good = secrets.compare_digest(token.encode(), self._token.encode())
        if not is_good and not is_known:
            return _forbidden(request, USED_TOKEN)
        response = _to_first_page(request)
        if is_good:
            session = secrets.token_urlsafe(32)
            self._sessions.add(session)
            response.set_cookie(self._cookie, session, httponly=True, samesite="strict")
            self._token = secrets.token_urlsafe(32)
            self._on_used(self.address)
        return response

    def _is_own_name(self, name: str) -> bool:
        # Reject the names of other sites, because DNS rebinding can make them resolve to this machine. It cannot do so
        # with IP addresses and loopback names.
        if is_loopback(name) or (name == self._host and not self._is_wildcard):
            return True
        return self._is_wildcard and (_is_ip(name) or name == socket.gethostname().lower())


class AccessControl:
    """Middleware that applies `Access` to every request and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store" if _is_api(scope) else "no-cache")
            await send(message)

        response = self._access.answer(Request(scope)) or self._app
        await response(scope, receive, send_with_headers)


def _is_api(scope: Scope) -> bool:
    return str(scope["path"]).startswith("/api/")


def _forbidden(request: Request, sentence: str) -> Response:
    if _is_api(request.scope):
        return JSONResponse({"detail": sentence}, status_code=403)
    return HTMLResponse(_page("Not available", f"<p>{sentence}</p>"), status_code=403)


def _to_first_page(request: Request) -> Response:
    if request.headers.get("sec-fetch-site") != "cross-site":
        return RedirectResponse("/", status_code=303)
    # After a click on a link in another site, such as a web terminal, the browser would follow a redirect without the
    # SameSite=Strict cookie. So return a page that loads the first page of the viewer.
    return HTMLResponse(_page("Opening", "", '<meta http-equiv="refresh" content="0; url=/">'))


def _page(title: str, body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f'<meta name="viewport" content="width=device-width">{head}<title>{title}</title><style>{STYLE}</style></head>'
        f"<body><h1>{title}</h1>{body}</body></html>"
    )


def _is_from_own_page(request: Request) -> bool:
    # Compare the port, too, because other servers on this machine have the same host name.
    return _place_in(request.headers.get("origin", "")) == request.headers.get("host", "").lower()


def _place_in(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

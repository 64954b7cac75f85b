"""Watch everything that a browser must never do on our pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, Request, Response

REPORT_VIOLATIONS = """addEventListener("securitypolicyviolation",
    (event) => console.error(`forbidden by ${event.violatedDirective}: ${event.blockedURI} ${event.sample}`))"""


class Watch:
    """Dialogs, errors, forbidden content, failed requests, and requests to other hosts, of all pages of a context."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        """`origin` is the only place that may be asked for anything."""
        self.complaints: list[str] = []
        self.expected_statuses: set[int] = set()
        """The statuses of failed requests that the test causes on purpose."""
        self._origin = origin
        context.add_init_script(REPORT_VIOLATIONS)
        context.on("page", self._watch)

    def _watch(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("request", self._on_request)
        page.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        # Failed requests are judged by their status.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.complaints.append(f"console: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and f"{address.scheme}://{address.netloc}" != self._origin:
            self.complaints.append(f"request: {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected_statuses:
            self.complaints.append(f"status {response.status}: {response.url}")

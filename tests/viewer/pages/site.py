"""A running `ng view`, and its addresses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from tests.conftest import Command, Workplace
from tests.rows import rows_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ADDRESS = re.compile(r"http://\S+/\?token=\S+")


class Site:
    """A viewer of a folder of results, in a process of its own."""

    def __init__(self, workplace: Workplace, browser: Browser, folder: Path) -> None:
        self.folder = folder
        self.command: Command = workplace.start("ng_view", str(folder), "--no-open")
        self.first_address = ADDRESS.search(self.command.wait_for("Ctrl-C ends the viewer"))[0]  # type: ignore[index]
        self.origin = self.first_address.partition("/?")[0]
        context = browser.new_context()
        page = context.new_page()
        page.goto(self.first_address)
        # Further contexts of the same browser need no token.
        self.session: Any = context.storage_state()
        self._request = context.request

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON of a route below /api."""
        reply = self._request.get(f"{self.origin}/api/{path}", params=parameters)
        assert reply.ok, reply.text()
        return orjson.loads(reply.body())

    def run(self, name: str) -> str:
        """Return the id of a run."""
        return next(run["id"] for run in self.get("runs")["runs"] if run["name"] == name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the scored rollouts of a run from its file."""
        return rows_of(self.folder / f"{name}.jsonl")

    def address(self, name: str, page: str, query: str = "") -> str:
        """Return the address of a page of a run, such as `rollouts` or `rollout/3/1`."""
        return f"{self.origin}/#/run/{self.run(name)}/{page}{query and '?'}{quote(query, safe='=&')}"

    def open(self, page: Page, name: str, path: str, query: str = "") -> None:
        """Open a page of a run in a window."""
        page.goto(self.address(name, path, query))

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

Key = tuple[int, int]
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

    def end(self) -> None:
        """End the viewer, unless it has ended."""
        finished = self.command.end() if self.command.process.poll() is None else self.command.wait()
        assert (finished.code, "Traceback" in finished.err) == (0, False), finished.err

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON of a route below /api."""
        # The viewer may close an idle connection just as the client sends on it.
        reply = self._request.get(f"{self.origin}/api/{path}", params=parameters, max_retries=3)
        assert reply.ok, reply.text()
        return orjson.loads(reply.body())

    def note(self, name: str, key: Key, **note: Any) -> None:
        """Write a note, as the page does."""
        body = {"run": self.run(name), "task": key[0], "repeat": key[1], **note}
        reply = self._request.post(
            f"{self.origin}/api/notes", data=body, headers={"Origin": self.origin}, max_retries=3
        )
        assert reply.ok, reply.text()

    def run(self, name: str) -> str:
        """Return the id of a run."""
        return next(run["id"] for run in self.get("runs")["runs"] if run["name"] == name)

    def rollouts(self, name: str) -> dict[Key, dict[str, Any]]:
        """Return what the files of a run have about each rollout: the scored line, or else the latest failed one."""
        results = self.folder / f"{name}.jsonl"
        failures = results.with_name(f"{results.stem}_failures.jsonl")
        return {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in rows_of(failures) + rows_of(results)}

    def address(self, name: str, page: str, query: str = "") -> str:
        """Return the address of a page of a run, such as `rollouts` or `rollout/3/1`."""
        return f"{self.origin}/#/run/{self.run(name)}/{page}{query and '?'}{quote(query, safe='=&')}"

    def open(self, page: Page, name: str, path: str, query: str = "") -> None:
        """Open a page of a run in a window."""
        page.goto(self.address(name, path, query))

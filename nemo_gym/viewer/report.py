"""Write a report: one HTML file with rollouts and the viewer's pages. A browser shows it without a server."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import httpx
import orjson

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, dump_json, write_chunks
from nemo_gym.rollouts.control.calling import ask_run
from nemo_gym.viewer.app import PAGE, api_of
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.run_view import RunView
from nemo_gym.viewer.selection import Selection

AT_ONCE = 200
MOST_COMPARED = 6

_LOADS_FILE = re.compile(r"\s*<(?:script|link)\b[^>]*\b(?:src|href)=\"\./[^>]*>(?:</script>)?")
"""A regex for the elements of the page that load a script or a style sheet from the server."""


class Written(NamedTuple):
    """The result of writing a report. `bytes` is the report's size, and `included` the number of rollouts in it."""

    bytes: int
    included: int
    total: int
    """The number of rollouts that match the filter."""
    problems: list[str]
    """The reasons why parts of the report are missing."""


def write_report(library: Library, selection: Selection, path: Path) -> Written:
    library.finish()
    collector = _Collector(library, selection)
    report = asyncio.run(collector.report())
    page = _page_with(report)
    write_chunks(path, [page])
    counts = report["selection"]
    return Written(len(page), counts["included"], counts["total"], collector.problems)


class _Unavailable(DataError):
    """Raised if the API does not return a part of the report."""


class _Collector:
    """A client that gets all data of the pages from the API, so that a report shows the same as the live viewer."""

    def __init__(self, library: Library, selection: Selection) -> None:
        self._library = library
        self._selection = selection
        transport = httpx.ASGITransport(app=api_of(library, ask_run))
        self._api = httpx.AsyncClient(transport=transport, base_url="http://viewer")
        self.problems: list[str] = []

    async def report(self) -> JsonObject:
        """Return the report as JSON (type `Report` in api.ts)."""
        async with self._api:
            return await self._report()

    async def _report(self) -> JsonObject:
        runs = [view.as_json() | {"is_live": False} for view in self._in_given_order()]
        report: JsonObject = {"runs": runs, "facets": {}, "overviews": {}, "rows": {}, "rollouts": {}, "tokens": {}}
        included = total = 0
        for run in runs:
            run_id = run["id"]
            report["facets"][run_id] = await self._json("facets", run=run_id)
            report["overviews"][run_id] = await self._json("overview", self._selection.query, run=run_id)
            rows, selected = await self._rows(run_id)
            report["rows"][run_id] = rows
            report["rollouts"][run_id] = [found async for found in self._rollouts(run_id, rows)]
            report["tokens"][run_id] = await self._tokens(run_id, rows) if run["has"]["tokens"] else {}
            included, total = included + len(rows), total + selected
        report["selection"] = {"text": self._selection.query, "total": total, "included": included}
        report["comparison"] = await self._comparison([run["id"] for run in runs])
        return report

    def _in_given_order(self) -> list[RunView]:
        """Return the runs in the order of the command line. The first run is the baseline of the comparison."""
        paths = self._library.paths
        return sorted(
            self._library.runs(), key=lambda view: [not view.files.results.is_relative_to(path) for path in paths]
        )

    async def _rows(self, run_id: str) -> tuple[list[JsonObject], int]:
        """Return the rows to include, and the number of all rows that match the filter."""
        selection = self._selection
        rows: list[JsonObject] = []
        while True:
            wanted = min(AT_ONCE, selection.limit - len(rows)) if selection.limit else AT_ONCE
            page = await self._json(
                "rollouts", selection.query, run=run_id, sort=selection.sort, order=selection.order,
                offset=len(rows), limit=wanted,
            )  # fmt: skip
            rows += page["rows"]
            if not page["rows"] or len(rows) in (page["total"], selection.limit):
                return rows, page["total"]

    async def _rollouts(self, run_id: str, rows: list[JsonObject]) -> AsyncIterator[JsonObject]:
        for row in rows:
            try:
                rollout = await self._json("rollout", run=run_id, task=row["task"], repeat=row["repeat"])
            except _Unavailable as problem:
                self.problems.append(str(problem))
                continue
            for part in _media_in(rollout):
                part["source"] = await self._data_address(part["source"])
            # Show only this attempt, because earlier attempts are not in the report.
            yield rollout | {"attempts": [rollout["attempt"]]}

    async def _tokens(self, run_id: str, rows: list[JsonObject]) -> JsonObject:
        found: JsonObject = {}
        for row in rows:
            if row["outcome"] == "scored":
                # Ignore a record that cannot be read, because `_rollouts` has reported it.
                with suppress(_Unavailable):
                    found[f"{row['task']}:{row['repeat']}"] = await self._json(
                        "tokens", run=run_id, task=row["task"], repeat=row["repeat"]
                    )
        return found

    async def _comparison(self, run_ids: list[str]) -> JsonObject | None:
        if not 2 <= len(run_ids) <= MOST_COMPARED:
            return None
        try:
            return await self._json("compare", f"{urlencode({'run': run_ids}, doseq=True)}&{self._selection.query}")
        except _Unavailable as problem:
            self.problems.append(str(problem))
            return None

    async def _data_address(self, source: str) -> str | None:
        reply = await self._api.get(source)
        if reply.status_code != httpx.codes.OK:
            self.problems.append(_detail(reply))
            return None
        return f"data:{reply.headers['content-type']};base64,{base64.b64encode(reply.content).decode()}"

    async def _json(self, name: str, query: str = "", **parameters: object) -> JsonObject:
        reply = await self._api.get(f"/api/{name}?{urlencode(parameters)}&{query}")
        if reply.status_code != httpx.codes.OK:
            raise _Unavailable(_detail(reply))
        found: JsonObject = orjson.loads(reply.content)
        return found


def _detail(reply: httpx.Response) -> str:
    return str(orjson.loads(reply.content)["detail"])


def _media_in(rollout: JsonObject) -> Iterator[JsonObject]:
    for item in rollout["items"]:
        for part in [*(item.get("parts") or ()), *(item.get("result") or ())]:
            if part["kind"] in ("image", "audio") and part["source"]:
                yield part


def _page_with(report: JsonObject) -> bytes:
    """Return the HTML page with its script, its style sheet and the report's data inlined."""
    # Inlining the files is safe, because the build escapes `</script>`, which would end the script element.
    program, styles = _part_of_page("app.js"), _part_of_page("app.css")
    # Forbid all requests, so that a script that a model wrote cannot send data anywhere.
    policy = (
        f"default-src 'none'; script-src {_hash_of(program)}; style-src {_hash_of(styles)}; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'"
    )
    data = base64.b64encode(gzip.compress(dump_json(report), mtime=0)).decode()
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{styles}</style>'
    body = (
        f'<script type="application/gzip+base64" id="report">{data}</script><script type="module">{program}</script>'
    )
    page = _LOADS_FILE.sub("", _part_of_page("index.html"))
    return page.replace("</head>", f"{head}</head>", 1).replace("</body>", f"{body}</body>").encode()


def _part_of_page(name: str) -> str:
    try:
        return (PAGE / name).read_text("utf-8")
    except FileNotFoundError as error:
        raise DataError(
            f"{PAGE / name} is missing. In a checkout, build it with 'make viewer'. Otherwise, reinstall nemo_gym."
        ) from error


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

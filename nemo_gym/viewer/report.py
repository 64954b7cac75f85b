"""Write a report: one HTML file with rollouts and the viewer's pages. A browser shows it without a server."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, dump_json, write_chunks
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.access import hash_of
from nemo_gym.viewer.app import PAGE, TOO_DEEP
from nemo_gym.viewer.comparing import MOST_RUNS, compare_json
from nemo_gym.viewer.groups import tools_of
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.overview import metrics_of, overview_of
from nemo_gym.viewer.rollout import Shown, medium_at, place_of, rollout_json, shown_at
from nemo_gym.viewer.routes_runs import facets_of
from nemo_gym.viewer.selection import Selection
from nemo_gym.viewer.tokens import tokens_of
from nemo_gym.viewer.training import AT, training_of

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
    """Write the report. Raise `DataError` if the run cannot be read or the file cannot be written."""
    library.finish()
    problems: list[str] = []
    report = _report(library, selection, problems)
    page = _page_with(report)
    write_chunks(path, [page])
    counts = report["selection"]
    return Written(len(page), counts["included"], counts["total"], problems)


def _report(library: Library, selection: Selection, problems: list[str]) -> JsonObject:
    """Return the report as JSON (type `Report` in api.ts), from the functions that answer the API."""
    paths = library.paths
    # Order the runs as on the command line. The first run is the baseline of the comparison.
    views = sorted(library.runs(), key=lambda view: [not view.files.results.is_relative_to(path) for path in paths])
    runs = [view.as_json() | {"is_live": False} for view in views]
    report: JsonObject = {"runs": runs, "facets": {}, "overviews": {}, "rows": {}, "rollouts": {}, "tokens": {}}
    report |= {"metrics": {}, "tools": {}, "training": {}}
    included = total = 0
    for view, run in zip(views, runs, strict=True):
        report["facets"][view.id] = facets_of(view)
        report["overviews"][view.id] = overview_of(view, selection.filter)
        report["metrics"][view.id] = metrics_of(view, is_whole=True)
        report["tools"][view.id] = tools_of(view, selection.filter)
        report["training"][view.id] = {over: training_of(view, selection.filter, over) for over in AT}
        page = view.index.select(
            selection.filter, selection.sort, is_descending=selection.order == "desc", limit=selection.limit or -1
        )
        report["rows"][view.id] = page.rows
        rollouts, tokens = report["rollouts"].setdefault(view.id, []), report["tokens"].setdefault(view.id, {})
        for row in page.rows:
            with _noting(problems):
                shown = shown_at(view, place_of(view, TaskKey(row["task"], row["repeat"])))
                # Show only this attempt, because earlier attempts are not in the report.
                rollout = rollout_json(shown, paths) | {"attempts": [shown.place.attempt]}
                for part in _media_in(rollout):
                    part["source"] = _data_address(shown, part["source"], paths, problems)
                rollouts.append(rollout)
                if run["has"]["tokens"] and row["outcome"] == "scored":
                    tokens[f"{row['task']}:{row['repeat']}"] = tokens_of(shown.record.fields, library.tokenizer)
        included, total = included + len(page.rows), total + page.total
    report["selection"] = {"text": selection.query, "total": total, "included": included}
    report["comparison"] = None
    if 2 <= len(views) <= MOST_RUNS:
        with _noting(problems):
            report["comparison"] = compare_json(views, selection.filter)
    return report


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Note why a part of the report cannot be read, and leave out this part."""
    try:
        yield
    except RecursionError:
        problems.append(TOO_DEEP)
    except DataError as error:
        problems.append(str(error))


def _media_in(rollout: JsonObject) -> Iterator[JsonObject]:
    for item in rollout["items"]:
        for part in [*(item.get("parts") or ()), *(item.get("result") or ())]:
            if part["kind"] in ("image", "audio") and part["source"]:
                yield part


def _data_address(shown: Shown, source: str, paths: Sequence[Path], problems: list[str]) -> str | None:
    """Return a data URL for the image or sound with this URL of the API, or None if it cannot be shown."""
    number = int(parse_qs(source)["n"][0])
    with _noting(problems):
        medium = medium_at(shown, number, paths)
        return f"data:{medium.type};base64,{base64.b64encode(medium.content).decode()}"
    return None


def _page_with(report: Mapping[str, object]) -> bytes:
    """Return the HTML page with its script, its style sheet and the report's data inlined."""
    # Inlining the files is safe, because the build escapes `</script>`, which would end the script element.
    program, styles = _part_of_page("app.js"), _part_of_page("app.css")
    # Forbid all requests, so that a script that a model wrote cannot send data anywhere.
    policy = (
        f"default-src 'none'; script-src {hash_of(program)}; style-src {hash_of(styles)}; img-src data:; "
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

"""Routes that return runs, and the rollouts of one run: as a table, as an overview, or as a file to download."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Event
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from nemo_gym.jsonl import dump_json
from nemo_gym.viewer.filters import Filter, filter_of
from nemo_gym.viewer.groups import TaskOrder, groups_of, tasks_of, tools_of
from nemo_gym.viewer.index.fields import fields_in, text_of
from nemo_gym.viewer.index.place import Missing
from nemo_gym.viewer.index.words import Cancelled
from nemo_gym.viewer.library import Library, RunView
from nemo_gym.viewer.overview import metrics_of, overview_of
from nemo_gym.viewer.training import Over, training_of

router = APIRouter(prefix="/api")
MOST_ROWS = 1000
LOOK_EVERY_S = 0.25
CHUNK_BYTES = 1 << 20
CLIENT_CLOSED_REQUEST = 499

Filtered = Annotated[Filter, Depends(filter_of)]
Offset = Annotated[int, Query(ge=0, lt=1 << 40)]
T = TypeVar("T")

MOST = 100
COUNTED = ("agents", "outcomes", "failures", "tiers", "servers", "tools")


def library_of(request: Request) -> Library:
    library: Library = request.app.state.library
    return library


def run_of(request: Request, run: str) -> RunView:
    """Return the run with this id, after indexing the lines that were appended to its files."""
    try:
        found = library_of(request).run(run)
    except KeyError:
        raise Missing(f"run {run[:100]} does not exist (any more). Go back to the list of runs.") from None
    found.refresh()
    return found


Viewed = Annotated[RunView, Depends(run_of)]


@router.get("/runs")
def runs(library: Annotated[Library, Depends(library_of)]) -> Response:
    """Return all runs, the latest first, and the problems found while searching for them."""
    found = library.runs()
    for run in found:
        run.refresh(wait_s=0.0)
    return json_response({"runs": [run.as_json() for run in found], "problems": library.problems()})


@router.get("/runs/{run}")
def one_run(run: Viewed) -> Response:
    return json_response(run.as_json())


@router.get("/facets")
def facets(run: Viewed) -> Response:
    """Return the values from which the user can choose in the filter."""
    return json_response(facets_of(run))


@router.get("/rollouts")
async def rollouts(
    request: Request,
    run: Viewed,
    filter: Filtered,
    *,
    sort: str = "task",
    order: Literal["asc", "desc"] = "asc",
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
    column: Annotated[tuple[str, ...], Query(max_length=100)] = (),
) -> Response:
    """Return the rows of one page of the table, and the number of all rows that match the filter."""

    def select(is_cancelled: Callable[[], bool]) -> Response:
        page = run.index.select(
            filter, sort, is_descending=order == "desc", offset=offset, limit=limit, columns=column,
            is_cancelled=is_cancelled,
        )  # fmt: skip
        return json_response({"total": page.total, "offset": offset, "rows": page.rows})

    return await while_connected(request, select)


@router.get("/overview")
async def overview(request: Request, run: Viewed, filter: Filtered) -> Response:
    return await while_connected(request, lambda stops: json_response(overview_of(run, filter, is_cancelled=stops)))


@router.get("/tasks")
async def tasks(
    request: Request, run: Viewed, filter: Filtered, order: Annotated[TaskOrder, Depends()], offset: Offset = 0
) -> Response:
    return await while_connected(request, lambda stops: json_response(tasks_of(run, filter, order, offset, stops)))


@router.get("/groups")
async def groups(request: Request, run: Viewed, filter: Filtered, by: str) -> Response:
    return await while_connected(request, lambda stops: json_response(groups_of(run, filter, by, stops)))


@router.get("/tools")
async def tools(request: Request, run: Viewed, filter: Filtered) -> Response:
    return await while_connected(request, lambda stops: json_response(tools_of(run, filter, stops)))


@router.get("/training")
async def training(request: Request, run: Viewed, filter: Filtered, over: Over = "version") -> Response:
    return await while_connected(request, lambda stops: json_response(training_of(run, filter, over, stops)))


@router.get("/metrics")
def metrics(run: Viewed, find: str = "", *, whole: bool = False) -> Response:
    return json_response(metrics_of(run, find, is_whole=whole))


@router.get("/selection")
async def selection(request: Request, run: Viewed, filter: Filtered) -> Response:
    """Stream the lines of the selected rollouts, unchanged, as a file to download."""
    # Run the query before the response starts. An error can then still change the HTTP status.
    await while_connected(request, lambda is_cancelled: run.index.count(filter, is_cancelled))
    name = f"{run.files.results.stem}_selection.jsonl"
    # Replace every character that is not safe in an HTTP header.
    safe = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "_" for each in name)
    headers = {"content-disposition": f'attachment; filename="{safe}"'}
    return StreamingResponse(_lines(run, filter), media_type="application/jsonl", headers=headers)


def _lines(run: RunView, filter: Filter) -> Iterator[bytes]:
    """Yield the lines in large chunks, because each chunk costs a switch between threads."""
    chunk: list[bytes] = []
    size = 0
    for place in run.index.places(filter):
        chunk += (place.raw(), b"\n")
        size += place.bytes
        if size >= CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    yield b"".join(chunk)


async def while_connected(request: Request, work: Callable[[Callable[[], bool]], T]) -> T:
    """Run slow work in a thread, and cancel it if the client disconnects."""
    has_left = Event()
    task = asyncio.create_task(run_in_threadpool(work, has_left.is_set))
    try:
        while not (await asyncio.wait([task], timeout=LOOK_EVERY_S))[0]:
            if await request.is_disconnected():
                has_left.set()
        return task.result()
    except Cancelled:
        raise HTTPException(CLIENT_CLOSED_REQUEST, "The client disconnected.") from None
    finally:
        has_left.set()


def json_response(value: object, status: int = 200) -> Response:
    """Return a JSON response. `dump_json` replaces invalid Unicode, which file names may contain."""
    return Response(dump_json(value), status, media_type="application/json")


def facets_of(run: RunView) -> Mapping[str, object]:
    """Return the `Facets` of `viewer/src/api.ts`.

    Each list of values has at most 100. The list is empty for a field with over 1000 distinct values.
    """
    census = run.index.census()
    tags = Counter(tag for note in run.notes.all().values() for tag in note.tags)
    with run.index.reading() as db:
        fields = list(_fields(db))
    reward, steps = census.reward_range, census.steps_range
    return {
        **{name: _counts(census.counts[name]) for name in COUNTED},
        "tags": _counts(tags),
        "fields": fields,
        "reward": {"min": reward[0], "max": reward[1]} if reward else None,
        "steps": {"min": steps[0], "max": steps[1]} if steps else None,
    }


def _counts(counts: Mapping[str, int]) -> list[Mapping[str, object]]:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [{"value": value, "count": count} for value, count in ordered[:MOST]]


def _fields(db: sqlite3.Connection) -> Iterable[Mapping[str, object]]:
    for name, field in fields_in(db).items():
        counted = db.execute(
            "SELECT value, count FROM counts WHERE field = ? AND count > 0 ORDER BY count DESC, value LIMIT ?",
            (field.id, MOST),
        )
        values = [{"value": text_of(value, field.kind), "count": count} for value, count in counted]
        yield {"name": name, "kind": field.kind, "values": values}

"""The routes of single rollouts, tasks, comparisons and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from starlette.responses import Response, StreamingResponse

from nemo_gym.errors import DataError
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.comparing import MOST_RUNS, compare_json
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.place import Missing, Place
from nemo_gym.viewer.library import RunView
from nemo_gym.viewer.notes import NoteFields
from nemo_gym.viewer.rollout import ITEMS_BYTES, medium_at, place_of, rollout_json, shown_at
from nemo_gym.viewer.routes_runs import Filtered, Viewed, json_response, library_of, run_of
from nemo_gym.viewer.tokens import tokens_of

CHUNK_BYTES = 1024 * 1024
LARGEST_INDEX = 1 << 43

Index = Annotated[int, Query(ge=0, lt=LARGEST_INDEX)]

router = APIRouter()

MOST_WITH_ITEMS = 16


class NoteRequest(NoteFields):
    """A request to write a note on a rollout of the run with the id `run`."""

    run: str


class Asked(NamedTuple):
    """The run and the rollout (or attempt) that a request names."""

    run: RunView
    place: Place


class Order(NamedTuple):
    """The sort order of the table from which a rollout was opened."""

    sort: str = "task"
    order: Literal["asc", "desc"] = "asc"


def _paths_given(request: Request) -> Sequence[Path]:
    return library_of(request).paths


Paths = Annotated[Sequence[Path], Depends(_paths_given)]


def _asked(run: Viewed, task: Index, repeat: Index, attempt: Index | None = None) -> Asked:
    return Asked(run, place_of(run, TaskKey(task, repeat), attempt))


def _filter_of_table(request: Request) -> Filter:
    given = request.query_params.multi_items()
    return Filter.of((name.removeprefix("filter."), value) for name, value in given if name not in ("task", "repeat"))


Rollout = Annotated[Asked, Depends(_asked)]


@router.get("/api/rollout")
def rollout(
    asked: Rollout,
    paths: Paths,
    selected: Annotated[Filter, Depends(_filter_of_table)],
    order: Annotated[Order, Depends()],
    from_item: Annotated[int, Query(alias="from", ge=0)] = 0,
) -> Response:
    """Return one rollout, with the keys of the rollouts before and after it in the table.

    The filter of the table uses `filter.task` and `filter.repeat`, because `task` and `repeat` name the rollout.
    """
    found = rollout_json(shown_at(*asked), paths, first_item=from_item)
    is_descending = order.order == "desc"
    neighbours = asked.run.index.neighbours(asked.place.key, selected, order.sort, is_descending=is_descending)
    found["previous"], found["next"] = (None if key is None else key._asdict() for key in neighbours)
    return json_response(found)


@router.get("/api/tokens")
def tokens(request: Request, asked: Rollout) -> Response:
    return json_response(tokens_of(shown_at(*asked).record.fields, library_of(request).tokenizer))


@router.get("/api/task")
def task(run: Viewed, task: Index, paths: Paths) -> Response:
    return json_response(task_json(run, task, paths))


@router.get("/api/compare")
def compare(request: Request, run: Annotated[list[str], Query()], selected: Filtered) -> Response:
    if not 2 <= len(run) <= MOST_RUNS or len(set(run)) < len(run):
        raise HTTPException(400, f"run: expected 2 to {MOST_RUNS} different runs.")
    return json_response(compare_json([run_of(request, each) for each in run], selected))


@router.get("/api/notes")
def notes(run: Viewed) -> Response:
    return json_response([note.model_dump(mode="json") for _, note in sorted(run.notes.all().items())])


@router.post("/api/notes")
def write_note(request: Request, body: NoteRequest) -> Response:
    run = run_of(request, body.run)
    key = place_of(run, TaskKey(body.task, body.repeat)).key
    note = run.notes.write(key, star=body.star, tags=body.tags, comment=body.comment)
    return json_response(note.model_dump(mode="json"))


@router.get("/api/raw")
def raw(asked: Rollout) -> Response:
    """Stream the line of a rollout from its file, because a long line might not fit into memory."""
    place = asked.place
    # Open the file before the response starts. An error can then still change the HTTP status.
    file = place.opened()
    name = f"task_{place.key.task}_repeat_{place.key.repeat}_attempt_{place.attempt}.json"
    headers = {"Content-Disposition": f'inline; filename="{name}"', "Content-Length": str(place.bytes)}
    return StreamingResponse(_line_at(file, place), media_type="application/json", headers=headers)


@router.get("/api/media")
def media(asked: Rollout, n: Index, paths: Paths) -> Response:
    """Return the n-th image or audio clip of a conversation. Both kinds are counted together, from 0."""
    medium = medium_at(shown_at(*asked), n, paths)
    return Response(medium.content, media_type=medium.type, headers={"X-Content-Type-Options": "nosniff"})


def _line_at(file: BinaryIO, place: Place) -> Iterator[bytes]:
    with file:
        file.seek(place.offset)
        left = place.bytes
        while left > 0 and (chunk := file.read(min(left, CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk


def task_json(run: RunView, task: int, given_paths: Sequence[Path]) -> Mapping[str, object]:
    """Return a task with its rollouts (type `TaskPage` in api.ts). Raise `Missing` if it does not exist."""
    scores = run.index.repeats(task)
    if not scores:
        raise Missing(f"The run {run.name} has no task {task}.")
    keys = [score.key for score in scores[:MOST_WITH_ITEMS]]
    return {
        "run": run.id,
        "task": task,
        "title": run.index.title(task),
        "repeats": _rollouts_json(run, keys, given_paths),
        "all": [{"repeat": score.key.repeat, "outcome": score.outcome, "reward": score.reward} for score in scores],
    }


def _rollouts_json(run: RunView, keys: Sequence[TaskKey], given_paths: Sequence[Path]) -> list[Mapping[str, object]]:
    """Return the rollouts, without those whose record cannot be shown."""
    items_bytes = ITEMS_BYTES // len(keys)
    found: list[Mapping[str, object]] = []
    for key in keys:
        # Leave the reason to /api/rollout, because the page requests each repeat that is missing here.
        with suppress(DataError, RecursionError):
            found.append(rollout_json(shown_at(run, place_of(run, key)), given_paths, items_bytes=items_bytes))
    return found

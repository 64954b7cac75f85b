"""The routes of single rollouts, tasks, comparisons and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from starlette.responses import Response, StreamingResponse

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.comparing import MOST_RUNS, compare_json
from nemo_gym.viewer.filters import Filter, filter_of
from nemo_gym.viewer.index.place import Place
from nemo_gym.viewer.library import Library, RunView
from nemo_gym.viewer.media import content_of
from nemo_gym.viewer.notes import NoteFields
from nemo_gym.viewer.rollout import conversation_at, place_of, rollout_json, shown_at
from nemo_gym.viewer.tasks import task_json
from nemo_gym.viewer.tokens import tokens_of

CHUNK_BYTES = 1024 * 1024
LARGEST_INDEX = 1 << 43

Index = Annotated[int, Query(ge=0, lt=LARGEST_INDEX)]
Selected = Annotated[Filter, Depends(filter_of)]

router = APIRouter()


class NoteRequest(NoteFields):
    """A new note."""

    run: str


class Asked(NamedTuple):
    """The record that a request is about."""

    run: RunView
    place: Place


class Order(NamedTuple):
    """The order of the table from which a rollout was opened."""

    sort: str = "task"
    order: Literal["asc", "desc"] = "asc"


def _paths_given(request: Request) -> Sequence[Path]:
    return _library(request).paths


def _library(request: Request) -> Library:
    library: Library = request.app.state.library
    return library


def _run(run: str, request: Request) -> RunView:
    """Return a run with the current content of its files. Raise `HTTPException` 404 if it is unknown."""
    try:
        found = _library(request).run(run)
    except KeyError as error:
        raise HTTPException(404, "This run does not exist (any more). Go back to the list of runs.") from error
    found.refresh()
    return found


Paths = Annotated[Sequence[Path], Depends(_paths_given)]
Run = Annotated[RunView, Depends(_run)]


def _asked(run: Run, task: Index, repeat: Index, attempt: Index | None = None) -> Asked:
    return Asked(run, place_of(run, TaskKey(task, repeat), attempt))


Rollout = Annotated[Asked, Depends(_asked)]


@router.get("/api/rollout")
def rollout(
    asked: Rollout,
    paths: Paths,
    selected: Selected,
    order: Annotated[Order, Depends()],
    from_item: Annotated[int, Query(alias="from", ge=0)] = 0,
) -> Response:
    """Return one rollout, with the ones before and after it in the table of the page.

    `task` and `repeat` are those of the rollout, so the table cannot be filtered by them.
    """
    found = rollout_json(shown_at(*asked), paths, first_item=from_item)
    is_descending = order.order == "desc"
    table = replace(selected, task=(), repeat=())
    neighbours = asked.run.index.neighbours(asked.place.key, table, order.sort, is_descending=is_descending)
    found["previous"], found["next"] = (None if key is None else key._asdict() for key in neighbours)
    return _json(found)


@router.get("/api/tokens")
def tokens(asked: Rollout) -> Response:
    """Return the training sequences of a rollout."""
    return _json(tokens_of(shown_at(*asked).record))


@router.get("/api/task")
def task(run: Run, task: Index, paths: Paths) -> Response:
    """Return all repeats of a task."""
    return _json(task_json(run, task, paths))


@router.get("/api/compare")
def compare(request: Request, run: Annotated[list[str], Query()], selected: Selected) -> Response:
    """Compare several runs task by task."""
    if not 2 <= len(run) <= MOST_RUNS or len(set(run)) < len(run):
        raise HTTPException(400, f"run: expected 2 to {MOST_RUNS} different runs.")
    return _json(compare_json([_run(each, request) for each in run], selected))


@router.get("/api/notes")
def notes(run: Run) -> Response:
    """Return all notes of a run."""
    return _json([note.as_json() for _, note in sorted(run.notes.all().items())])


@router.post("/api/notes")
def write_note(request: Request, body: NoteRequest) -> Response:
    """Replace the note on a rollout."""
    run = _run(body.run, request)
    key = place_of(run, TaskKey(body.task, body.repeat)).key
    return _json(run.notes.write(key, star=body.star, tags=body.tags, comment=body.comment).as_json())


@router.get("/api/raw")
def raw(asked: Rollout) -> Response:
    """Stream the line of a rollout from its file, because it may be larger than the memory."""
    place = asked.place
    try:
        # Opened before the response begins, because its status is sent first.
        file = place.path.open("rb")
    except OSError as error:
        raise HTTPException(409, f"{place.path}: cannot be read ({error.strerror}). Check the path.") from error
    name = f"task_{place.key.task}_repeat_{place.key.repeat}_attempt_{place.attempt}.json"
    headers = {"Content-Disposition": f'inline; filename="{name}"', "Content-Length": str(place.bytes)}
    return StreamingResponse(_line_at(file, place), media_type="application/json", headers=headers)


@router.get("/api/media")
def media(asked: Rollout, n: Index, paths: Paths) -> Response:
    """Return an image or a sound of a conversation, by its number in it."""
    shown = shown_at(*asked)
    found = conversation_at(shown).media
    if n >= len(found):
        raise HTTPException(404, f"The rollout has {len(found)} images and sounds, so number {n} does not exist.")
    try:
        medium = content_of(found[n].part, found[n].kind, shown.planned or shown.record, paths)
    except DataError as error:
        raise HTTPException(404, str(error)) from error
    return Response(medium.content, media_type=medium.type, headers={"X-Content-Type-Options": "nosniff"})


def _line_at(file: BinaryIO, place: Place) -> Iterator[bytes]:
    with file:
        file.seek(place.offset)
        left = place.bytes
        while left > 0 and (chunk := file.read(min(left, CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk


def _json(value: JsonObject | list[JsonObject]) -> Response:
    return Response(dump_json(value), media_type="application/json")

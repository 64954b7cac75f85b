"""Notes on rollouts, in a file next to the results: stars, tags and comments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from nemo_gym.capture.log_file import locked_log
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, dump_line, read_raw_lines
from nemo_gym.rollouts.run_record import read_record
from nemo_gym.schemas.row import TaskKey

SUFFIX = "_notes.jsonl"
NOT_A_FILE = "the file is a link or not a regular file"
LONGEST_COMMENT = 20_000
LONGEST_TAG = 64
MOST_TAGS = 32

Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_TAG)]


class NoteFields(BaseModel):
    """The fields of a note as they are sent and stored."""

    model_config = ConfigDict(extra="forbid")

    task: int = Field(ge=0, lt=1 << 43)
    repeat: int = Field(ge=0, lt=1 << 43)
    star: bool = False
    tags: list[Tag] = Field(default_factory=list, max_length=MOST_TAGS)
    comment: str = Field(default="", max_length=LONGEST_COMMENT)


class _Line(NoteFields):
    model_config = ConfigDict(extra="ignore")

    at: datetime

    @property
    def moment(self) -> datetime:
        """The time of the note. A time without a time zone is in UTC."""
        return self.at if self.at.tzinfo else self.at.replace(tzinfo=UTC)

    def as_note(self) -> Note:
        tags = tuple(dict.fromkeys(self.tags))
        return Note(
            self.task, self.repeat, self.star, tags, self.comment, self.moment.isoformat(timespec="milliseconds")
        )


@dataclass(frozen=True)
class Note:
    """The latest note on a rollout."""

    task: int
    repeat: int
    star: bool
    tags: tuple[str, ...]
    comment: str
    at: str
    """The time of the note in ISO 8601."""

    @property
    def is_empty(self) -> bool:
        """Whether the note does not have a star, any tags or a comment. Writing an empty note removes the old one."""
        return not (self.star or self.tags or self.comment)

    def as_json(self) -> JsonObject:
        """Return the note as JSON (type `Note` in api.ts)."""
        return asdict(self)


class Notes:
    """The notes of one run, in `<output>_notes.jsonl`. Thread-safe, and safe for several viewers at once.

    Lines are only appended to the file, and the last line about a rollout counts. Resuming the run keeps the notes.
    `--overwrite` also keeps the file, but its old notes are about rollouts that no longer exist. Notes from before
    the run began are therefore ignored.
    """

    def __init__(self, path: Path) -> None:
        """Manage the notes in the file `path`, which need not exist yet."""
        self.path = path
        self._record = path.with_name(f"{path.name.removesuffix(SUFFIX)}_run.json")
        self._lock = Lock()
        self._read_at: tuple[object, object] | None = None
        self._notes: Mapping[TaskKey, Note] = MappingProxyType({})
        self._problems: list[JsonObject] = []

    def of(self, key: TaskKey) -> Note | None:
        """Return the note on a rollout, or None if it does not have one."""
        return self.all().get(key)

    def all(self) -> Mapping[TaskKey, Note]:
        """Return all notes. The file is read only if it has changed."""
        with self._lock:
            self._refresh()
            return self._notes

    def problems(self) -> list[JsonObject]:
        """Return as JSON the lines that are not valid notes (type `Problem` in api.ts)."""
        with self._lock:
            self._refresh()
            return self._problems

    def write(self, key: TaskKey, *, star: bool, tags: list[str], comment: str) -> Note:
        """Replace the note on a rollout. An empty note removes it. Raise `DataError` if the file cannot be written."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        note = Note(key.task, key.repeat, star, tuple(dict.fromkeys(tags)), comment.strip(), now)
        if os.path.lexists(self.path) and not _is_own_file(self.path):
            # Runs may come from strangers. A link could make the viewer write to another file, and a pipe
            # could block the viewer.
            raise DataError(f"{self.path}: the note cannot be written, because {NOT_A_FILE}. Remove the file.")
        try:
            with locked_log(self.path) as log:
                log.append(dump_line(note.as_json()), sync=True)
        except OSError as error:
            raise DataError(
                f"{self.path}: the note cannot be written ({error.strerror}). Check the permissions of the folder, or "
                "copy the run to a folder of your own."
            ) from error
        return note

    def _refresh(self) -> None:
        versions = _version(self.path), _version(self._record)
        if versions == self._read_at:
            return
        self._problems = []
        if os.path.lexists(self.path) and not _is_own_file(self.path):
            self._add_problem(None, f"notes are not read, because {NOT_A_FILE}.")
        began_at = self._began_at() if all(versions) else None
        notes = {
            TaskKey(line.task, line.repeat): line.as_note()
            for line in (self._lines() if versions[0] else ())
            if began_at is None or line.moment >= began_at
        }
        self._notes = MappingProxyType({key: note for key, note in notes.items() if not note.is_empty})
        self._read_at = versions

    def _lines(self) -> Iterator[_Line]:
        """Yield the valid notes of the file. Record every other line as a problem."""
        try:
            for number, raw in read_raw_lines(self.path):
                try:
                    yield _Line.model_validate_json(raw)
                except ValidationError:
                    self._add_problem(number, "not a note of the viewer. If the line is damaged, delete it.")
        except DataError as error:
            self._add_problem(None, str(error))

    def _add_problem(self, line: int | None, message: str) -> None:
        self._problems.append({"file": str(self.path), "line": line, "message": message})

    def _began_at(self) -> datetime | None:
        """Return when the first session of the run began, or None if this is unknown."""
        record = read_record(self._record)
        if record is None:
            return None
        try:
            began_at = datetime.fromisoformat(record.first_session.started_at)
        except ValueError:
            return None
        return began_at if began_at.tzinfo else None


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _version(path: Path) -> tuple[int, ...] | None:
    if not _is_own_file(path):
        return None
    try:
        found: os.stat_result = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

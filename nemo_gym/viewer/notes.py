"""Notes on rollouts, in a file next to the results: stars, tags and comments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from nemo_gym.capture.log_file import locked_log
from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_line, read_raw_lines
from nemo_gym.rollouts.run_record import read_record
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.discovery import Problem, version_of
from nemo_gym.viewer.timeline import moment_of

SUFFIX = "_notes.jsonl"
NOT_A_FILE = "the file is a link or not a regular file"
LONGEST_COMMENT = 20_000
LONGEST_TAG = 64
MOST_TAGS = 32

Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_TAG)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS), AfterValidator(lambda tags: tuple(dict.fromkeys(tags)))]


class NoteFields(BaseModel):
    """The fields of a note as they are sent and stored."""

    model_config = ConfigDict(extra="forbid")

    task: int = Field(ge=0, lt=1 << 43)
    repeat: int = Field(ge=0, lt=1 << 43)
    star: bool = False
    tags: Tags = ()
    comment: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST_COMMENT)] = ""


class Note(NoteFields):
    """The latest note on a rollout (type `Note` in api.ts)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: datetime
    """The time of the note. A time without a time zone is in UTC."""

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.task, self.repeat)

    @property
    def moment(self) -> datetime:
        """The time of the note with its time zone."""
        return self.at if self.at.tzinfo else self.at.replace(tzinfo=UTC)

    @property
    def is_empty(self) -> bool:
        """Whether the note does not have a star, any tags or a comment. Writing an empty note removes the old one."""
        return not (self.star or self.tags or self.comment)


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
        self._read_at: object = None
        self._notes: Mapping[TaskKey, Note] = MappingProxyType({})
        self._problems: list[Problem] = []

    def of(self, key: TaskKey) -> Note | None:
        """Return the note on a rollout, or None if it does not have one."""
        return self.all().get(key)

    def all(self) -> Mapping[TaskKey, Note]:
        """Return all notes. The file is read only if it has changed."""
        with self._lock:
            self._refresh()
            return self._notes

    def problems(self) -> list[Problem]:
        """Return the lines that are not valid notes."""
        with self._lock:
            self._refresh()
            return self._problems

    def write(self, key: TaskKey, *, star: bool, tags: Sequence[str], comment: str) -> Note:
        """Replace the note on a rollout. An empty note removes it. Raise `DataError` if the file cannot be written."""
        note = Note(
            task=key.task, repeat=key.repeat, star=star, tags=tuple(tags), comment=comment, at=datetime.now(UTC)
        )
        if os.path.lexists(self.path) and not _is_own_file(self.path):
            # Runs may come from strangers. A link could make the viewer write to another file, and a pipe
            # could block the viewer.
            raise DataError(f"{self.path}: the note cannot be written, because {NOT_A_FILE}. Remove the file.")
        try:
            with locked_log(self.path) as log:
                log.append(dump_line(note.model_dump(mode="json")), sync=True)
        except OSError as error:
            raise DataError(
                f"{self.path}: the note cannot be written ({error.strerror}). Check the permissions of the folder, or "
                "copy the run to a folder of your own."
            ) from error
        return note

    def _refresh(self) -> None:
        versions = [version_of(each) if _is_own_file(each) else None for each in (self.path, self._record)]
        if versions == self._read_at:
            return
        self._problems = []
        if os.path.lexists(self.path) and not _is_own_file(self.path):
            self._add_problem(None, f"notes are not read, because {NOT_A_FILE}.")
        record = read_record(self._record) if all(versions) else None
        began_at = moment_of(record.first_session.started_at) if record else None
        notes = {
            note.key: note
            for note in (self._lines() if versions[0] else ())
            if began_at is None or note.moment >= began_at
        }
        self._notes = MappingProxyType({key: note for key, note in notes.items() if not note.is_empty})
        self._read_at = versions

    def _lines(self) -> Iterator[Note]:
        """Yield the valid notes of the file. Record every other line as a problem."""
        try:
            for number, raw in read_raw_lines(self.path):
                try:
                    yield Note.model_validate_json(raw)
                except ValidationError:
                    self._add_problem(number, "not a note of the viewer. If the line is damaged, delete it.")
        except DataError as error:
            self._add_problem(None, str(error))

    def _add_problem(self, line: int | None, message: str) -> None:
        self._problems.append(Problem(file=str(self.path), line=line, message=message))


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()

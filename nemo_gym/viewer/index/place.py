"""The position of a record in its file."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nemo_gym.errors import DataError
from nemo_gym.jsonl import parse_row
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.schemas.row import Row, TaskKey


class Missing(DataError):
    """The error for a run, a task or a record that does not exist (any more). The API answers with status 404."""


class Place(NamedTuple):
    """One line of a run's file, and the rollout that it belongs to."""

    path: Path
    line: int
    """The line number, from 1."""
    offset: int
    bytes: int
    """The size of the line without the newline."""
    key: TaskKey
    outcome: Outcome
    """The outcome of the record. It is `unresolved` for a planned row."""
    attempt: int

    def opened(self) -> BinaryIO:
        """Open the file at the start of the line. Raise `DataError` if it cannot be read."""
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror}). Check the path.") from error
        file.seek(self.offset)
        return file

    def raw(self) -> builtins.bytes:
        """Return the line. Raise `DataError` if the file was shortened or cannot be read."""
        with self.opened() as file:
            raw = file.read(self.bytes)
        if len(raw) < self.bytes:
            raise DataError(f"{self.path}:{self.line}: the file was shortened. Reload the page.")
        return raw

    def read(self) -> Row:
        """Parse the line. Raise `DataError` if the file cannot be read, or has changed so that the line is invalid."""
        return Row(parse_row(self.raw(), self.path, self.line))

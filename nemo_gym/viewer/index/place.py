"""The position of a record in its file."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, parse_row
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.schemas.row import TaskKey


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

    def raw(self) -> builtins.bytes:
        """Return the line. Raise `DataError` if the file was shortened or cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                raw = file.read(self.bytes)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror}). Check the path.") from error
        if len(raw) < self.bytes:
            raise DataError(f"{self.path}:{self.line}: the file was shortened. Reload the page.")
        return raw

    def read(self) -> JsonObject:
        """Parse the line. Raise `DataError` if the file cannot be read, or has changed so that the line is invalid."""
        return parse_row(self.raw(), self.path, self.line)

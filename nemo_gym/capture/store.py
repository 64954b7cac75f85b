"""One file per rollout, to which the processes of several model servers add their calls."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import dump_line
from nemo_gym.schemas.rollout import ROLLOUT_ID_PATTERN

CAPTURE_SUFFIX = ".capture.jsonl"
INCOMPLETE_SUFFIX = ".capture.incomplete"


class Extent(NamedTuple):
    """How much, in bytes, is kept of a rollout at some moment."""

    calls: int = 0
    reasons: int = 0


BEGINNING = Extent()


class CaptureStore:
    """The captured model calls of rollouts, under one folder.

    Lines are whole whoever else writes: each is added under a lock and on disk when `record` returns. An id that is
    no rollout id (`ROLLOUT_ID_PATTERN`) raises `ValueError`, so none leads out of the folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def opened(self) -> Self:
        """Make the folder; raises `ConfigError` where that is not possible."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{self.root} cannot be made a folder ({error.strerror})"
            raise ConfigError(f"model_call_capture_dir: {problem}. Name another one.") from error
        return self

    def path_for(self, rollout_id: str) -> Path:
        """The file with the calls of a rollout."""
        return self._path(rollout_id, CAPTURE_SUFFIX)

    def incomplete_path_for(self, rollout_id: str) -> Path:
        """The file that is there only where calls of a rollout are missing from its record."""
        return self._path(rollout_id, INCOMPLETE_SUFFIX)

    def mark_incomplete(self, rollout_id: str, reason: str = "") -> None:
        """Let it be known that the record of a rollout lacks something."""
        self._append(self.incomplete_path_for(rollout_id), b" ".join(reason.encode().split()) + b"\n")

    def is_incomplete(self, rollout_id: str) -> bool:
        """Whether the record of a rollout is known to lack something."""
        return self.incomplete_path_for(rollout_id).exists()

    def record(self, rollout_id: str, record: Mapping[str, Any]) -> None:
        """Add one call, all of it or nothing. Raises `OSError` where the disk does not take it."""
        was_torn = self._append(self.path_for(rollout_id), dump_line(dict(record)))
        if was_torn:
            self.mark_incomplete(rollout_id, "a line of the capture is torn")

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """Every call of a rollout as it was written. Raises `DataError` where a line is torn."""
        return [_parsed(raw, self.path_for(rollout_id), number) for number, raw in self._lines(rollout_id)]

    def read_available(self, rollout_id: str, after: Extent = BEGINNING) -> list[dict[str, Any]]:
        """The calls that can be read; lines that are torn are left out, and so is what was there at `after`."""
        return [call for _, raw in self._lines(rollout_id, after.calls) if (call := _readable(raw)) is not None]

    def torn_lines(self, rollout_id: str, after: Extent = BEGINNING) -> int:
        """How many lines cannot be read: a process was stopped while it wrote."""
        return sum(_readable(raw) is None for _, raw in self._lines(rollout_id, after.calls))

    def reasons(self, rollout_id: str, after: Extent = BEGINNING) -> list[str]:
        """Why the record of a rollout is incomplete; empty where it is not."""
        raw = _content(self.incomplete_path_for(rollout_id))[after.reasons :]
        return raw.decode("utf-8", "replace").splitlines()

    def extent(self, rollout_id: str) -> Extent:
        """How much is kept now: a rollout of this name may have been recorded by an earlier run."""
        return Extent(_size(self.path_for(rollout_id)), _size(self.incomplete_path_for(rollout_id)))

    def _path(self, rollout_id: str, suffix: str) -> Path:
        if not ROLLOUT_ID_PATTERN.fullmatch(rollout_id):
            raise ValueError(f"{rollout_id!r} is not a rollout id: letters, digits, '.', '_' and '-' only")
        return self.root / f"{rollout_id}{suffix}"

    def _append(self, path: Path, line: bytes) -> bool:
        """Add one line; whether the line before it was torn."""
        self.root.mkdir(parents=True, exist_ok=True)
        # Opened for each line: there are many more rollouts than files that a process may hold.
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            left = memoryview(b"\n" + line if is_torn else line)
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
        return is_torn

    def _lines(self, rollout_id: str, start: int = 0) -> Iterator[tuple[int, bytes]]:
        content = _content(self.path_for(rollout_id))[start:]
        return ((number, raw) for number, raw in enumerate(content.splitlines(), start=1) if raw.strip())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _readable(raw: bytes) -> dict[str, Any] | None:
    try:
        call = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return call if isinstance(call, dict) else None


def _parsed(raw: bytes, path: Path, number: int) -> dict[str, Any]:
    call = _readable(raw)
    if call is None:
        raise DataError(f"{path}:{number}: not a whole JSON object; the process that wrote it was stopped meanwhile.")
    return call

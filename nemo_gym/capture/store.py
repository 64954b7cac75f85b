"""Store captured calls in one file per rollout, shared by the processes of all model servers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from nemo_gym.capture.log_file import locked_log, path_of_rollout
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import JsonObject, RawLine, dump_line

CAPTURE_SUFFIX = ".capture.jsonl"
INCOMPLETE_SUFFIX = ".capture.incomplete"


class Extent(NamedTuple):
    """The sizes of a rollout's files in bytes at one point in time."""

    calls: int = 0
    reasons: int = 0


BEGINNING = Extent()


class AvailableExchanges(NamedTuple):
    """The readable calls, each with its position among the lines read (from 0), and the number of damaged lines."""

    exchanges: list[tuple[int, JsonObject]]
    damaged: int


class CaptureStore:
    """The captured model calls of rollouts, under one folder.

    Each line is written under a lock, because several processes write. It is on disk when `record` returns. Methods
    raise `ValueError` for an id that does not match `ROLLOUT_ID_PATTERN`, because it could lead to another folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def opened(self) -> Self:
        """Create the folder, or raise `ConfigError`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{self.root} cannot be created ({error.strerror})"
            raise ConfigError(f"model_call_capture_dir: {problem}. Choose another folder.") from error
        return self

    def path_for(self, rollout_id: str) -> Path:
        return path_of_rollout(self.root, rollout_id, CAPTURE_SUFFIX)

    def incomplete_path_for(self, rollout_id: str) -> Path:
        """Return the path of the file that exists only if a rollout's record lacks calls."""
        return path_of_rollout(self.root, rollout_id, INCOMPLETE_SUFFIX)

    def mark_incomplete(self, rollout_id: str, reason: str = "") -> None:
        self._append(self.incomplete_path_for(rollout_id), b" ".join(reason.encode().split()) + b"\n")

    def is_incomplete(self, rollout_id: str) -> bool:
        return self.incomplete_path_for(rollout_id).exists()

    def record(self, rollout_id: str, record: Mapping[str, object]) -> None:
        """Append one call completely or not at all. Raise `OSError` if it cannot be written."""
        was_torn = self._append(self.path_for(rollout_id), dump_line(dict(record)))
        if was_torn:
            self.mark_incomplete(rollout_id, "a line of the record is incomplete")

    def read(self, rollout_id: str) -> list[JsonObject]:
        """Return all calls of a rollout. Raise `DataError` if a line is incomplete."""
        return [_parsed(raw, self.path_for(rollout_id), number) for number, raw in self._lines(rollout_id)]

    def read_available(self, rollout_id: str, after: Extent = BEGINNING) -> AvailableExchanges:
        """Return the readable calls that were written since `after`, and the number of damaged lines."""
        lines = [_readable(raw) for _, raw in self._lines(rollout_id, after.calls)]
        exchanges = [(position, call) for position, call in enumerate(lines) if call is not None]
        return AvailableExchanges(exchanges, len(lines) - len(exchanges))

    def reasons(self, rollout_id: str, after: Extent = BEGINNING) -> list[str] | None:
        """Return the reasons for missing calls that were recorded since `after`; None if nothing was recorded."""
        path = self.incomplete_path_for(rollout_id)
        content = _content(path)[after.reasons :]
        if not content and (after.reasons or not path.exists()):
            return None
        return [reason for reason in content.decode("utf-8", "replace").splitlines() if reason]

    def extent(self, rollout_id: str) -> Extent:
        """Return the current sizes of a rollout's files. Pass them as `after` to exclude the calls recorded so far."""
        return Extent(_size(self.path_for(rollout_id)), _size(self.incomplete_path_for(rollout_id)))

    def _append(self, path: Path, line: bytes) -> bool:
        """Append one line, and return whether the previous line was incomplete."""
        with locked_log(path) as log:
            is_torn = log.is_torn
            log.append(line, sync=True)
        return is_torn

    def _lines(self, rollout_id: str, start: int = 0) -> Iterator[RawLine]:
        content = _content(self.path_for(rollout_id))[start:]
        return (RawLine(number, raw) for number, raw in enumerate(content.splitlines(), start=1) if raw.strip())


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


def _readable(raw: bytes) -> JsonObject | None:
    try:
        call = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return call if isinstance(call, dict) else None


def _parsed(raw: bytes, path: Path, number: int) -> JsonObject:
    call = _readable(raw)
    if call is None:
        raise DataError(
            f"{path}:{number}: the line is not a complete JSON object, because the process that wrote it was stopped. "
            "Use read_available to read the other calls."
        )
    return call

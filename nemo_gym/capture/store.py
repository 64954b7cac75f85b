"""Store the recorded calls of rollouts in one file per rollout, shared by the processes of all model servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import orjson

from nemo_gym.capture.log_file import locked_log
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import JsonObject, dump_line
from nemo_gym.schemas.row import ROLLOUT_ID_PATTERN

INCOMPLETE_SUFFIX = ".capture.incomplete"


class ParsedLine(NamedTuple):
    """A line of a rollout's file: its number (from 1), and its JSON object, or None if the line is damaged."""

    number: int
    fields: JsonObject | None


class Extent(NamedTuple):
    """The sizes of a rollout's files in bytes at one point in time."""

    calls: int = 0
    reasons: int = 0


BEGINNING = Extent()


class AvailableExchanges(NamedTuple):
    """The readable calls, each with its position among the lines read (from 0), and the number of damaged lines."""

    exchanges: list[tuple[int, JsonObject]]
    damaged: int


class CallStore:
    """The files of rollouts with their recorded model calls, under one folder.

    Each line is written under a lock, because several processes write. Methods raise `ValueError` for an id that does
    not match `ROLLOUT_ID_PATTERN`, because it could lead to another folder.
    """

    SUFFIX: ClassVar[str]

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def path_for(self, rollout_id: str) -> Path:
        return self._path(rollout_id, self.SUFFIX)

    def _path(self, rollout_id: str, suffix: str) -> Path:
        if not ROLLOUT_ID_PATTERN.fullmatch(rollout_id):
            raise ValueError(
                f"{rollout_id!r} is not a rollout id. Begin with a letter or digit, and use only letters, digits, "
                "'.', '_' and '-'"
            )
        return self.root / f"{rollout_id}{suffix}"


def parsed_lines(content: bytes, loads: Callable[[bytes], Any]) -> Iterator[ParsedLine]:
    """Yield the lines of a rollout's file, except empty ones."""
    for number, raw in enumerate(content.splitlines(), start=1):
        if raw.strip():
            try:
                fields = loads(raw)
            except orjson.JSONDecodeError:
                fields = None
            yield ParsedLine(number, fields if isinstance(fields, dict) else None)


class CaptureStore(CallStore):
    """The captured requests and answers of rollouts. A call is on disk when `record` returns."""

    SUFFIX = ".capture.jsonl"

    def opened(self) -> Self:
        """Create the folder, or raise `ConfigError`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{self.root} cannot be created ({error.strerror})"
            raise ConfigError(f"model_call_capture_dir: {problem}. Choose another folder.") from error
        return self

    def incomplete_path_for(self, rollout_id: str) -> Path:
        """Return the path of the file that exists only if a rollout's record lacks calls."""
        return self._path(rollout_id, INCOMPLETE_SUFFIX)

    def mark_incomplete(self, rollout_id: str, reason: str = "") -> None:
        _append(self.incomplete_path_for(rollout_id), b" ".join(reason.encode().split()) + b"\n")

    def is_incomplete(self, rollout_id: str) -> bool:
        return self.incomplete_path_for(rollout_id).exists()

    def record(self, rollout_id: str, record: Mapping[str, object]) -> None:
        """Append one call completely or not at all. Raise `OSError` if it cannot be written."""
        was_torn = _append(self.path_for(rollout_id), dump_line(dict(record)))
        if was_torn:
            self.mark_incomplete(rollout_id, "a line of the record is incomplete")

    def read(self, rollout_id: str) -> list[JsonObject]:
        """Return all calls of a rollout. Raise `DataError` if a line is incomplete."""
        calls = []
        for number, call in self._lines(rollout_id):
            if call is None:
                raise DataError(
                    f"{self.path_for(rollout_id)}:{number}: the line is not a complete JSON object, because the "
                    "process that wrote it was stopped. Use read_available to read the other calls."
                )
            calls.append(call)
        return calls

    def read_available(self, rollout_id: str, after: Extent = BEGINNING) -> AvailableExchanges:
        """Return the readable calls that were written since `after`, and the number of damaged lines."""
        lines = [call for _, call in self._lines(rollout_id, after.calls)]
        exchanges = [(position, call) for position, call in enumerate(lines) if call is not None]
        return AvailableExchanges(exchanges, len(lines) - len(exchanges))

    def reasons(self, rollout_id: str, after: Extent = BEGINNING) -> list[str] | None:
        """Return the reasons for missing calls that were recorded since `after`; None if nothing was recorded."""
        content = _content(self.incomplete_path_for(rollout_id))[after.reasons :]
        if not content and (after.reasons or not self.is_incomplete(rollout_id)):
            return None
        return [reason for reason in content.decode("utf-8", "replace").splitlines() if reason]

    def extent(self, rollout_id: str) -> Extent:
        """Return the current sizes of a rollout's files. Pass them as `after` to exclude the calls recorded so far."""
        return Extent(_size(self.path_for(rollout_id)), _size(self.incomplete_path_for(rollout_id)))

    def _lines(self, rollout_id: str, start: int = 0) -> Iterator[ParsedLine]:
        return parsed_lines(_content(self.path_for(rollout_id))[start:], orjson.loads)


def _append(path: Path, line: bytes) -> bool:
    """Append one line to a file on disk, and return whether the previous line was incomplete."""
    with locked_log(path) as log:
        is_torn = log.is_torn
        log.append(line, sync=True)
    return is_torn


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

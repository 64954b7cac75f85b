"""Read, append and safely rewrite JSON Lines."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import orjson

from nemo_gym.errors import DataError

JsonObject = dict[str, Any]
"""A parsed JSON object: JSON values by key."""

LONG_NUMBER = re.compile(rb"\d{19}")
"""A regular expression for 19 digits in a row, as in all integers beyond 64 bits. orjson would round such integers."""
PLAIN_VALUES = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
FITTED_BYTES = 64 * 1024
"""`fitted` does not copy buffers of at least this size, because the unused part of a large buffer takes no memory."""
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DIGEST_BYTES = 8


class WriteFailed(DataError):
    """A write that the system rejects, for example because the disk is full."""


class RawLine(NamedTuple):
    """One line of a file: its number (from 1) and its bytes without trailing whitespace."""

    number: int
    raw: bytes


class Line(NamedTuple):
    """One line of a file: its number (from 1), its bytes without trailing whitespace, and the parsed row."""

    number: int
    raw: bytes
    row: JsonObject


def read_raw_lines(path: Path) -> Iterator[RawLine]:
    """Yield the lines of a file unparsed, without blank lines or a byte order mark."""
    return (line for _, line in read_lines_at(path))


def read_lines_at(path: Path) -> Iterator[tuple[int, RawLine]]:
    """Yield each line of `read_raw_lines` with its offset in the file: `(offset, line)`."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    with file:
        offset = 0
        for number, line in enumerate(file, start=1):
            raw = (line.removeprefix(BOM_UTF8) if number == 1 else line).rstrip()
            if raw:
                yield offset, RawLine(number, raw)
            offset += len(line)


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the rows of a file, without blank lines.

    Raise `DataError` with file, line and column for a line that is not a JSON object.
    """
    for number, raw in read_raw_lines(path):
        yield Line(number, raw, parse_row(raw, path, number))


def parse_row(line: bytes, path: Path, number: int) -> JsonObject:
    """Parse one line as a JSON object. If the line is not a JSON object, raise `DataError` with file and line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(
            f"{path}:{number}:{error.colno}: not valid JSON ({error.msg}). Each line must hold one JSON object."
        ) from error
    if not isinstance(row, dict):
        raise DataError(f"{path}:{number}: expected a JSON object, found {type(row).__name__}.")
    return row


def read_rows(path: Path) -> Iterator[JsonObject]:
    """Yield the rows of a file without line numbers."""
    return (line.row for line in read_lines(path))


def line_digest(line: bytes) -> bytes:
    """Return a digest of a line, `DIGEST_BYTES` bytes long. A newline at the end of the line is ignored."""
    text = memoryview(line)[: len(line) - line.endswith(b"\n")]
    # SHA-1 takes half the time of BLAKE2, which older versions used. The digests need to reveal edits, not attacks.
    return hashlib.sha1(text, usedforsecurity=False).digest()[:DIGEST_BYTES]


def dump_line(row: object) -> bytes:
    """Return a row as one line with a newline. Keys that are not strings, and numpy values, are allowed."""
    try:
        return fitted(orjson.dumps(row, option=PLAIN_VALUES | orjson.OPT_APPEND_NEWLINE))
    except orjson.JSONEncodeError:
        return dump_json(row) + b"\n"


def dump_json(value: object, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return any plain value as JSON, including values that orjson rejects.

    orjson rejects integers beyond 64 bits and lone surrogates. The latter are invalid Unicode and become question
    marks.
    """
    try:
        return fitted(
            orjson.dumps(value, default=default, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
        )
    except orjson.JSONEncodeError as error:
        if not any(cause in str(error) for cause in ("64-bit", "surrogates")):
            raise
        return json.dumps(value, default=default, ensure_ascii=False).encode(errors="replace")


def loads_exact(text: str | bytes) -> Any:
    """Parse JSON without rounding integers of more than 64 bits.

    Raise `ValueError` if it is invalid, nested too deeply, or has a number that cannot be parsed.
    """
    value = orjson.loads(text)
    if not LONG_NUMBER.search(text.encode() if isinstance(text, str) else text):
        return value
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def check_unicode(value: object) -> None:
    """Raise `ValueError` if a string in a JSON value contains a lone surrogate.

    `json` accepts `"\\ud800"`, but a response with it could not be encoded.
    """
    json.dumps(value, ensure_ascii=False).encode()


def dump_up_to(name: str, fields: JsonObject) -> bytes:
    """Return the start of a JSON object: `fields` and the key `name`. The caller adds the value and `}`."""
    written = dump_json(fields)
    return b'%b%b"%b":' % (written[:-1], b"," if fields else b"", name.encode())


def fitted(written: bytes) -> bytes:
    """Copy a small result into a buffer of the right size, because orjson's buffer is up to ten times larger."""
    return bytes(memoryview(written)) if len(written) < FITTED_BYTES else written


def write_rows(path: Path, rows: Iterable[object]) -> int:
    """Write a file atomically and return its row count. Raise the same errors as `write_chunks`."""
    return write_chunks(path, map(dump_line, rows))


def write_chunks(path: Path, chunks: Iterable[bytes]) -> int:
    """Write a file atomically and return the number of chunks.

    Raise `WriteFailed` if the disk is full, or if the path cannot be written to. In the latter case, nothing has been
    taken from `chunks` yet.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    count = 0
    file = _opened(path, partial)
    try:
        with file:
            for chunk in chunks:
                file.write(chunk)
                count += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        # Raise any other error unchanged, because it may come from the iterable, such as from an unreadable input.
        if error.errno not in FULL:
            raise
        raise WriteFailed(
            f"{path}: cannot be written ({error.strerror}). Free disk space, or choose another disk."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _opened(path: Path, partial: Path) -> BinaryIO:
    """Open the file that is to replace the one at `path`."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        return partial.open("wb")
    except OSError as error:
        raise WriteFailed(f"{path}: cannot be written ({error.strerror}). Check the path.") from error


class Appender:
    """A writer that appends whole lines to a file. Each line is passed to the system before `write` returns.

    If the system rejects a line, for example because the disk is full, `write` removes the written part and raises
    `WriteFailed`.
    """

    def __init__(
        self,
        path: Path,
        *,
        truncate: bool = False,
        hide: Callable[[bytes], bytes] | None = None,
        announce: Callable[[bytes], None] | None = None,
    ) -> None:
        """Open the file. `hide` masks secrets in each line. `announce` receives each line before it is written."""
        self._path = path
        self._hide = hide
        self._announce = announce
        path.parent.mkdir(parents=True, exist_ok=True)
        # Write unbuffered, with one call per line, so that a killed process leaves at most one incomplete line.
        self._file: BinaryIO = path.open("wb" if truncate else "ab", buffering=0)
        self._is_safe = True
        self._syncing = Lock()

    def write(self, row: object) -> None:
        line = dump_line(row)
        if self._hide is not None:
            line = self._hide(line)
        if self._announce is not None:
            self._announce(line)
        left = memoryview(line)
        self._is_safe = False
        try:
            # The system may write only a part when the disk fills up or a signal arrives.
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._undo(len(line) - len(left))
            raise self._failed(error) from error

    def sync(self) -> None:
        """Flush written lines to the disk with fsync. Any thread may call this method."""
        with self._syncing:
            if self._is_safe or self._file.closed:
                return
            self._is_safe = True
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                # Ignore this error, because pipes and devices do not support fsync.
                if error.errno != errno.EINVAL:
                    raise self._failed(error) from error

    def close(self) -> None:
        try:
            self.sync()
        finally:
            with self._syncing:
                self._file.close()

    def _undo(self, written: int) -> None:
        with suppress(OSError):
            self._file.truncate(os.fstat(self._file.fileno()).st_size - written)

    def _failed(self, error: OSError) -> WriteFailed:
        return WriteFailed(f"{self._path}: cannot be written to ({error.strerror}).")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

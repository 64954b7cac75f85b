"""Read, append and safely rewrite JSON Lines."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from threading import Lock
from types import TracebackType
from typing import Annotated, Any, BinaryIO, NamedTuple, Self

import orjson
from pydantic import AfterValidator

from nemo_gym.errors import DataError

JsonObject = dict[str, Any]
"""A parsed JSON object: JSON values by key."""

_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = re.compile(rb"(?:^|[\s,:\[-])[1-9]\d{18,}(?=[\s,\]}]|$)")
"""A number of 19 digits or more, as all integers beyond 64 bits. orjson would round those."""
INTEGER_RANGE = range(-(2**63), 2**64)
"""The integers that orjson can write."""
PLAIN_VALUES = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
FITTED_BYTES = 64 * 1024
"""`fitted` does not copy buffers of at least this size, because the unused part of a large buffer takes no memory."""
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gzip -dk"), b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dk"), b"BZh": ("bzip2", "bzip2 -dk"),
    b"\xfd7zXZ": ("xz", "xz -dk"), b"PK\x03\x04": ("zip", "unzip"),
}  # fmt: skip
"""The name and command of each kind of compression, by the first bytes of its files."""
_COMPRESSED_SUFFIXES = {".gz", ".zst", ".bz2", ".xz", ".zip"}
_CONVERT = "Convert it, for example if it is {name}: iconv -f {name} -t UTF-8 OLD > NEW"
_NOT_JSON = re.compile(r"-?(?:NaN|Infinity|nan|inf(?:inity)?)\b")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DIGEST_BYTES = 8

_REPLACEMENT = rb"\ufffd"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


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
            if number == 1 and (problem := _unreadable(path, line)):
                raise DataError(f"{path}: {problem}")
            if number == 1 and line.startswith(BOM_UTF8):
                offset = len(BOM_UTF8)
                line = line[offset:]  # noqa: PLW2901 - the line without the mark
            raw = line.rstrip()
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
        row = loads_exact(line)
    except orjson.JSONDecodeError as error:
        if b"\0" in line:
            delete = f"sed -i '{number}d' {quote(str(path))}"
            raise DataError(
                f"{path}:{number}: not valid JSON, because the line contains null bytes, which a crash or a full disk "
                f"can leave in place of data. Delete the line, for example with: {delete}"
            ) from error
        place = f"{path}:{number}:{error.colno}"
        raise DataError(f"{place}: {_reason(line, error)}") from error
    if not isinstance(row, dict):
        raise DataError(f"{path}:{number}: expected a JSON object, found {type(row).__name__}.")
    return row


def _unreadable(path: Path, start: bytes) -> str | None:
    """Describe a file that is compressed or not in UTF-8, given its first bytes. Return None for other files."""
    for magic, (name, command) in _COMPRESSED.items():
        if start.startswith(magic):
            return f"the file is compressed ({name}). Decompress it first: {command} {quote(str(path))}"
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or (b"\0" in start[:4] and any(start[:4])):
        return f"the file is not in UTF-8 but probably in UTF-16. {_CONVERT.format(name='UTF-16')}"
    return None


def _reason(line: bytes, error: orjson.JSONDecodeError) -> str:
    """Return the reason why a line is not valid JSON, and what to do."""
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        return (
            f"not valid JSON (the byte 0x{line[wrong.start]:02x} is not UTF-8). {_CONVERT.format(name='ISO-8859-1')}"
        )
    if found := _NOT_JSON.match(text, error.pos):
        return f"not valid JSON ({found[0]} is not JSON). Write null, or leave the field out."
    return f"not valid JSON ({error.msg}). Each line must hold one JSON object."


def plain_file(path: Path) -> Path:
    """Return a path for an output. Raise `ValueError` if its name promises compression, which would not happen."""
    if path.suffix in _COMPRESSED_SUFFIXES:
        raise ValueError(
            f"{path.name} would not be compressed, because rollouts are appended to it. Write {path.stem}, and "
            "compress it after the run"
        )
    return path


OutputPath = Annotated[Path, AfterValidator(plain_file)]
"""The type of a setting with the path of a file that a command writes."""


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


def dump_json(value: object, default: Callable[[Any], Any] | None = None, *, sorts_keys: bool = False) -> bytes:
    """Return any plain value as JSON, including values that orjson rejects.

    orjson rejects integers beyond 64 bits and lone surrogates. The latter are invalid Unicode and become question
    marks.
    """
    option = PLAIN_VALUES | (orjson.OPT_SORT_KEYS if sorts_keys else 0)
    try:
        return fitted(orjson.dumps(value, default=default, option=option))
    except orjson.JSONEncodeError as error:
        if not any(cause in str(error) for cause in ("64-bit", "surrogates")):
            raise
        written_default = None if default is None else lambda each: _writable(default(each))
        return fitted(orjson.dumps(_writable(value), default=written_default, option=option))


def _writable(value: object) -> object:
    """Copy a value, with lone surrogates replaced and integers beyond 64 bits as fragments, for `orjson.dumps`."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int):
        return value if value in INTEGER_RANGE else orjson.Fragment(str(int(value)))
    if isinstance(value, dict):
        return {
            str(key) if isinstance(key, int) and key not in INTEGER_RANGE else _writable(key): _writable(each)
            for key, each in value.items()
        }
    return [_writable(each) for each in value] if isinstance(value, list | tuple) else value


def loads_exact(text: str | bytes) -> Any:
    """Parse JSON without rounding integers of more than 64 bits.

    Raise `orjson.JSONDecodeError` if it is invalid, nested too deeply, or has a number that cannot be parsed.
    """
    value = orjson.loads(text)
    written = text.encode() if isinstance(text, str) else text
    # Search for a run of zeros, because this takes a tenth of the time of a search for a run of digits.
    if written.translate(_DIGITS_AS_ZERO).find(b"0" * 19) < 0 or not _LONG_NUMBER.search(written):
        return value
    try:
        return json.loads(written)
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from error
    except ValueError as error:
        raise orjson.JSONDecodeError(str(error), "", 0) from error


def check_unicode(value: object) -> None:
    """Raise `ValueError` if a string in a JSON value contains a lone surrogate.

    `json` accepts `"\\ud800"`, but a response with it could not be encoded.
    """
    json.dumps(value, ensure_ascii=False).encode()


def without_lone_surrogates(text: bytes) -> bytes:
    r"""Replace the lone surrogates in a JSON text with U+FFFD. For example, a cut emoji leaves a lone `\ud83d`."""
    # Most texts have none. This search takes a tenth of the time of `in`, and a fraction of that of `sub`.
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda escape: _REPLACEMENT if escape["lone"] else escape[0], text)


def dump_up_to(name: str, fields: Mapping[str, object]) -> bytes:
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
    count = 0
    try:
        with replacing(path) as partial, _opened(path, partial) as file:
            for chunk in chunks:
                file.write(chunk)
                count += 1
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Raise any other error unchanged, because it may come from the iterable, such as from an unreadable input.
        if error.errno not in FULL:
            raise
        raise WriteFailed(
            f"{path}: cannot be written ({error.strerror}). Free disk space, or choose another disk."
        ) from error
    return count


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file. Without an error, the file replaces the one at `path` after the block."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        # If the folder is not usable, the block has raised a better error.
        with suppress(OSError):
            partial.unlink()


def _opened(path: Path, partial: Path) -> BinaryIO:
    """Open the file that is to replace the one at `path`."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        check_regular(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return partial.open("wb")
    except OSError as error:
        raise WriteFailed(f"{path}: cannot be written ({error.strerror}). Check the path.") from error


def check_regular(path: Path) -> None:
    """Raise `WriteFailed` if a path is not a regular file, because opening a named pipe may take for ever."""
    is_descriptor = path.absolute().parent in (Path("/dev"), Path("/dev/fd")) or path.is_relative_to("/proc")
    if is_descriptor or (path.exists() and not path.is_file()):
        raise WriteFailed(
            f"{path}: is not a regular file, and other commands must be able to read it again. Name a file; "
            "'tail -f FILE' shows its lines as they are written."
        )


class Written(NamedTuple):
    """A line that was appended to a file."""

    offset: int
    line: bytes
    """The line with its newline."""


class Appender:
    """A writer that appends whole lines to a file. Each line is passed to the system before `write` returns.

    If the system rejects a line, for example because the disk is full, `write` removes the written part and raises
    `WriteFailed`.
    """

    def __init__(self, path: Path, *, hide: Callable[[bytes], bytes] | None = None) -> None:
        """Open the file. `hide` masks secrets in each line."""
        self._path = path
        self._hide = hide
        path.parent.mkdir(parents=True, exist_ok=True)
        check_regular(path)
        # Write unbuffered, with one call per line, so that a killed process leaves at most one incomplete line.
        self._file: BinaryIO = path.open("ab", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size
        """The size of the file, if nothing else writes to it."""
        self._is_safe = True
        self._syncing = Lock()

    def write(self, row: object) -> Written:
        """Append a row as one line, and return the line with its offset."""
        return self.append(dump_line(row))

    def append(self, line: bytes) -> Written:
        """Append a line, or several at once, with all newlines."""
        if self._hide is not None:
            line = self._hide(line)
        left = memoryview(line)
        self._is_safe = False
        try:
            # The system may write only a part when the disk fills up or a signal arrives.
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._undo(len(line) - len(left))
            raise self._failed(error) from error
        offset, self.size = self.size, self.size + len(line)
        return Written(offset, line)

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
        return WriteFailed(
            f"{self._path}: cannot be written to ({error.strerror}). Free some disk space, then resume with --resume."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


def cut_torn_line(path: Path) -> None:
    """Remove a last line that a crash left incomplete, or add its newline if only that is missing."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        file.seek(0, os.SEEK_END)
        size = file.tell()
        tail_start = size
        tail = b""
        while tail_start and b"\n" not in tail:
            step = min(max(1 << 16, len(tail)), tail_start)
            tail_start -= step
            file.seek(tail_start)
            tail = file.read(step) + tail
        whole = tail.rfind(b"\n") + 1
        rest = tail[whole:]
        if not rest:
            return
        if _is_json(rest):
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        else:
            file.truncate(tail_start + whole)


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True

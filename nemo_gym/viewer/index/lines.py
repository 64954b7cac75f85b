"""Read the complete lines of a growing file with bounded memory."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

LONGEST_LINE = 32 << 20
"""The number of bytes from which a line is too long: only its start and its end are kept in memory."""
END_BYTES = 64 << 10
HEAD_BYTES = 4096
"""The number of bytes to compare at the start of a file and before the cursor, to recognize a rewritten file."""


class FileLine(NamedTuple):
    """One line of a file, without its newline."""

    number: int
    """The line number, from 1."""
    offset: int
    bytes: int
    raw: builtins.bytes
    """The content, or only its first and last `END_BYTES` if the line has at least `LONGEST_LINE` bytes."""
    is_complete: bool
    """Whether the line ends with a newline in the file."""

    @property
    def is_whole(self) -> bool:
        """Whether `raw` is the whole line."""
        return len(self.raw) == self.bytes


class Cursor(NamedTuple):
    """The position up to which a file has been read, with a digest that reveals a rewritten file."""

    bytes: int = 0
    lines: int = 0
    digest: str = ""
    """The digest of the file's first bytes and of the last bytes before the cursor."""


def lines_from(file: BinaryIO, cursor: Cursor) -> Iterator[FileLine]:
    """Yield the lines after a cursor, including blank lines and an incomplete last line."""
    offset, number = cursor.bytes, cursor.lines
    file.seek(offset)
    while raw := file.readline(LONGEST_LINE):
        number += 1
        size = len(raw)
        if size == LONGEST_LINE and not raw.endswith(b"\n"):
            raw, size = _ends(file, raw)
        is_complete = raw.endswith(b"\n")
        yield FileLine(number, offset, size - is_complete, raw[: len(raw) - is_complete], is_complete)
        offset += size


def _ends(file: BinaryIO, beginning: bytes) -> tuple[bytes, int]:
    """Read the rest of a long line. Return the line's start and end, joined, and the line's size."""
    head, tail, size = beginning[:END_BYTES], beginning[-END_BYTES:], len(beginning)
    while more := file.readline(1 << 20):
        size += len(more)
        tail = (tail + more)[-END_BYTES:]
        if more.endswith(b"\n"):
            break
    return head + tail, size


def digest_at(file: BinaryIO, size: int) -> str:
    """Return the digest of the first bytes of a file, and of the last bytes before `size`."""
    file.seek(0)
    head = file.read(min(HEAD_BYTES, size))
    file.seek(max(0, size - HEAD_BYTES))
    return hashlib.sha256(head + file.read(min(HEAD_BYTES, size))).hexdigest()[:16]


def is_same_file(path: Path, cursor: Cursor) -> bool:
    """Return whether a file's first bytes and those before the cursor are unchanged, or True if nothing was read."""
    if not cursor.bytes:
        return True
    try:
        with path.open("rb") as file:
            return path.stat().st_size >= cursor.bytes and digest_at(file, cursor.bytes) == cursor.digest
    except OSError:
        return False

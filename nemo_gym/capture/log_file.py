"""Log files to which several processes append lines, each of which is written completely or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path


class LogFile:
    """An open file of lines. Its lock prevents other processes from writing to it at the same time."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.size = file.seek(0, os.SEEK_END)

    @property
    def is_torn(self) -> bool:
        """Whether the last line is incomplete, because the process that wrote it was stopped."""
        return self.size > 0 and self.ending(1) != b"\n"

    def beginning(self, count: int) -> bytes:
        return os.pread(self._file.fileno(), count, 0)

    def ending(self, count: int) -> bytes:
        return os.pread(self._file.fileno(), count, max(0, self.size - count))

    def content(self) -> bytes:
        return os.pread(self._file.fileno(), self.size, 0)

    def clear(self) -> None:
        self._file.truncate(0)
        self.size = 0

    def append(self, line: bytes, *, sync: bool = False) -> None:
        """Append a line. If the last line is incomplete, end it first. Raise `OSError` if writing fails."""
        left = memoryview(b"\n" + line if self.is_torn else line)
        size = self.size
        try:
            while left:
                written = self._file.write(left)
                left = left[written:]
                self.size += written
            if sync:
                os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(size)
            self.size = size
            raise


@contextmanager
def locked_log(path: Path) -> Iterator[LogFile]:
    """Open a file for appending and lock it. Create the file and its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Open the file for each line, because there are more rollouts than files that a process may keep open.
    with path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield LogFile(file)

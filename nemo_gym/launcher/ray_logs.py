"""The logs of servers on a Ray cluster: one file per process, and lines that name the node."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import BinaryIO

from nemo_gym.launcher.watch import LineSink, log_name

logger = logging.getLogger(__name__)


class NodeLogs:
    """A receiver of log lines. It writes them to one file per process and passes them on to `on_line`."""

    def __init__(self, on_line: LineSink | None, folder: Path | None) -> None:
        self.on_line = on_line
        self.folder = folder
        self._files: dict[str, BinaryIO | None] = {}

    def take(self, name: str, address: str, line: str) -> None:
        """Write one log line of a process to its file, and pass it on with the address of the process's node."""
        if self.folder is not None:
            self._write(name, line.encode() + b"\n")
        if self.on_line is not None:
            self.on_line(f"{name} {address}", line)

    def close(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()

    def _write(self, name: str, line: bytes) -> None:
        assert self.folder is not None
        path = self.folder / log_name(name)
        try:
            if name not in self._files:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._files[name] = path.open("ab", buffering=0)
            if file := self._files[name]:
                file.write(line)
        except OSError as error:
            # Continue without this file, because a log that cannot be written must not stop the servers.
            logger.warning("%s can no longer be written to (%s)", path, error)
            self._files[name] = None

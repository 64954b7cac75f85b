"""The thread that reads the logs of all servers, and their reports that they are ready or have failed."""

from __future__ import annotations

import json
import logging
import os
import queue
import selectors
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.jsonl import check_regular
from nemo_gym.launcher.base import ServerProcess

logger = logging.getLogger(__name__)

LineSink = Callable[[str, str], None]
"""A function that receives an instance's name and one line of its log."""

READ_SIZE = 65536
LONGEST_LINE = 1 << 20


def log_name(process_name: str) -> str:
    # Quote the name, so that a name with slashes cannot lead to another folder.
    return f"{quote(process_name, safe=' #')}.log"


class Watcher:
    """A thread that reads the pipes of all processes. It puts each process whose state changes into `changes`.

    It never adds None. Other threads add None to wake the thread that waits for changes.
    """

    def __init__(self, on_line: LineSink | None, log_dir: Path | None) -> None:
        self.secrets = SecretValues()
        """The values that are masked in every log line."""
        self.changes: queue.SimpleQueue[ServerProcess | None] = queue.SimpleQueue()
        self._on_line = on_line
        self._log_dir = log_dir
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._open_logs = 0
        self._files: dict[str, BinaryIO] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="server logs", daemon=True)
        self._thread.start()

    def add(self, process: ServerProcess) -> None:
        """Start reading a process's pipes, which are closed when the process ends."""
        if self._log_dir is not None and process.name not in self._files:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            path = self._log_dir / log_name(process.name)
            check_regular(path)
            self._files[process.name] = path.open("ab", buffering=0)
        with self._lock:
            self._open_logs += 1
        self._selector.register(process.log_fd, selectors.EVENT_READ, _LogReader(process, self))
        self._selector.register(process.report_fd, selectors.EVENT_READ, _ReportReader(process, self))
        os.write(self._wake_write, b"+")

    def next_change(self, timeout_s: float | None) -> ServerProcess | None:
        """Return the next entry of `changes`, or None after the timeout."""
        try:
            return self.changes.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self, patience_s: float = 0.5) -> None:
        """Read the remaining lines, then stop. Wait at most `patience_s`: a grandchild may keep a pipe open."""
        os.write(self._wake_write, b".")
        self._thread.join(patience_s)
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def take_line(self, process: ServerProcess, line: str) -> None:
        """Write one log line to the file and pass it to `on_line`. If the file or `on_line` fails, stop using it.

        Errors are only logged, because reading must continue: a server blocks once its log pipe is full.
        """
        line = self.secrets.mask(line)
        process.tail.append(line)
        if file := self._files.get(process.name):
            try:
                file.write(line.encode() + b"\n")
            except (OSError, ValueError) as error:
                logger.warning("%s can no longer be written to (%s)", file.name, error)
                self._files.pop(process.name, None)
                file.close()
        if self._on_line is not None:
            try:
                self._on_line(process.name, line)
            except Exception:
                logger.exception("on_line failed, so it receives no more log lines")
                self._on_line = None

    def _run(self) -> None:
        is_stopping = False
        while not (is_stopping and self._open_logs == 0):
            for key, _ in self._selector.select():
                if key.data is None:
                    is_stopping = b"." in os.read(self._wake_read, 1024) or is_stopping
                elif not key.data.read(os.read(key.fd, READ_SIZE)):
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                    with self._lock:
                        self._open_logs -= isinstance(key.data, _LogReader)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


class _LogReader:
    def __init__(self, process: ServerProcess, watcher: Watcher) -> None:
        self._process = process
        self._watcher = watcher
        self._rest = b""

    def read(self, data: bytes) -> bool:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > LONGEST_LINE):
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._watcher.take_line(self._process, line.decode("utf-8", "replace"))
        self._process.log_has_ended = not data
        return bool(data)


class _ReportReader:
    def __init__(self, process: ServerProcess, watcher: Watcher) -> None:
        self._process = process
        self._watcher = watcher
        self._data = b""

    def read(self, data: bytes) -> bool:
        self._data += data
        *lines, self._data = self._data.split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._process.is_ready = self._process.is_ready or bool(message.get("ready"))
            self._process.start_timeout_s = message.get("start_timeout_s", self._process.start_timeout_s)
            if "start_failure" in message:
                self._process.start_failure = self._watcher.secrets.mask(message["start_failure"])
            if "progress" in message:
                self._process.progress = self._watcher.secrets.mask(message["progress"])
            if "failed" in message:
                self._process.failure = self._watcher.secrets.mask(message["failed"])
        # At the end of the pipe, the process has ended, because a process keeps its report pipe open until then.
        self._process.has_ended = not data
        if lines or not data:
            self._watcher.changes.put(self._process)
        return bool(data)

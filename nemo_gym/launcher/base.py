"""The types for starting a process: its file descriptors, its starter, and the process itself."""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

TAIL_LINES = 40


class ProcessOrder(NamedTuple):
    """The file descriptors for a new server process. The launcher closes its own copies afterwards."""

    settings: int
    report: int
    log: int
    listeners: tuple[int, ...]


class Starter(Protocol):
    """A way to start server processes and to signal them."""

    def start(self, order: ProcessOrder) -> int:
        """Start one process and return its pid."""

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to the process and to all processes that it started."""

    def exit_code(self, pid: int) -> int | None:
        """Return the exit code (negative: the number of the signal), or None while the process runs."""

    def close(self) -> None:
        """Kill all processes that are still running."""


@dataclass
class ServerProcess:
    starter: Starter
    name: str
    """The server's instance name, followed by `#<n>` for each process after the first."""
    log_fd: int
    report_fd: int
    pid: int = 0
    is_ready: bool = False
    has_ended: bool = False
    log_has_ended: bool = False
    """Whether the process's log has been read to the end."""
    failure: str | None = None
    """The reason that the process itself reported for not starting."""
    start_timeout_s: float = 0.0
    """The time that the process has reported to need for its start; 0 if it has reported none."""
    start_failure: str = ""
    """The reason why the process could not start this time. A restart may help, unlike after a `failure`."""
    progress: str = ""
    """The last report of the process about its start, such as the last log line of an engine that loads a model."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    """The last lines of the process's log."""

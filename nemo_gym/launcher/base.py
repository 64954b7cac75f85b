"""What it takes to start a process: the order, who can carry it out, and what came of it."""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

TAIL_LINES = 40


class ProcessOrder(NamedTuple):
    """The descriptors that a new server process receives; the launcher closes its own copies afterwards."""

    settings: int
    report: int
    log: int
    listeners: tuple[int, ...]


class Starter(Protocol):
    """Starts server processes and can still signal them."""

    def start(self, order: ProcessOrder) -> int:
        """Start one process and return its pid."""

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Signal the process and everything that it started."""

    def exit_code(self, pid: int) -> int | None:
        """The exit code of a process that ended (negative: the signal that ended it); None while it runs."""

    def close(self) -> None:
        """Give up: whatever still runs is killed."""


@dataclass
class ServerProcess:
    """One process of a server instance."""

    starter: Starter
    """Who can signal it."""
    name: str
    """The instance, with `#<n>` behind it where it has several workers."""
    log_fd: int
    report_fd: int
    pid: int = 0
    is_ready: bool = False
    has_ended: bool = False
    log_has_ended: bool = False
    """Whether all that it wrote has been read."""
    failure: str | None = None
    """What the process itself said about why it cannot start."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    """The last lines of its log."""

"""Messages about a process that ended, from its exit code and its last log lines."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from nemo_gym.errors import LaunchError
from nemo_gym.launcher.base import ServerProcess

EXIT_PATIENCE_S = 5.0
LOG_PATIENCE_S = 2.0
OUT_OF_MEMORY = " If memory ran out, which dmesg shows, use fewer replicas or workers, or load less data."


def how_it_ended(process: ServerProcess) -> str:
    """Describe how a process ended. Kill a process that closed its report pipe but still runs."""
    deadline = time.monotonic() + EXIT_PATIENCE_S
    while (code := process.starter.exit_code(process.pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if code is None:
        process.starter.signal(process.pid, signal.SIGKILL)
        return "no longer reports to its launcher"
    return ended(code)


def ended(code: int) -> str:
    """Describe an exit code: `ended with exit code 1`, or for -9 `was ended by SIGKILL`."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def failure_of(process: ServerProcess, how: str, when: str) -> LaunchError:
    """Return the error for a process that ended, with the last lines of its log."""
    # When the report pipe closes, the last log lines may still be unread. The wait is limited because a process
    # that the server started may keep the log open.
    deadline = time.monotonic() + LOG_PATIENCE_S
    while not process.log_has_ended and time.monotonic() < deadline:
        time.sleep(0.01)
    advice = OUT_OF_MEMORY if how == ended(-signal.SIGKILL) else ""
    details = f" {process.start_failure}" if process.start_failure else f"{advice}{tails([process])}"
    return LaunchError(f"server '{process.name}' {how}{when}.{details}")


def tails(processes: Sequence[ServerProcess]) -> str:
    """Return the last log lines of each process, with headings."""
    return "".join(
        f"\nThe last lines of {process.name}'s log:\n" + "\n".join(f"    {line}" for line in tail)
        for process in processes
        # Copy the lines, because a process that still runs may write another one meanwhile.
        if (tail := list(process.tail))
    )

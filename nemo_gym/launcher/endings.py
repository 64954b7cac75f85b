"""How a process ended, told by its exit code and by the last that it said."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from nemo_gym.errors import LaunchError
from nemo_gym.launcher.base import ServerProcess

EXIT_PATIENCE_S = 1.0
LOG_PATIENCE_S = 0.5


def how_it_ended(process: ServerProcess) -> str:
    """`was ended by SIGKILL`, `ended with exit code 1`. What only closed its report and lives on is killed."""
    deadline = time.monotonic() + EXIT_PATIENCE_S
    while (code := process.starter.exit_code(process.pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if code is None:
        process.starter.signal(process.pid, signal.SIGKILL)
        return "no longer reports to its launcher"
    return ended(code)


def ended(code: int) -> str:
    """An exit code in words; a negative one is the signal that ended the process."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def failure_of(process: ServerProcess, how: str, when: str) -> LaunchError:
    """That this process ended: how, when, and with the last of its log."""
    # The report closes with the process; the last lines of its log may still be on their way. A process that
    # the server started may hold the log open for longer.
    deadline = time.monotonic() + LOG_PATIENCE_S
    while not process.log_has_ended and time.monotonic() < deadline:
        time.sleep(0.01)
    return LaunchError(f"server '{process.name}' {how}{when}.{tails([process])}")


def tails(processes: Sequence[ServerProcess]) -> str:
    """The last lines that each of them wrote."""
    told = [
        f"\nThe last lines of {process.name}'s log:\n" + "\n".join(f"    {line}" for line in tail)
        for process in processes
        # Copied at once: a process that still runs may write its next line meanwhile.
        if (tail := list(process.tail))
    ]
    return "".join(told)

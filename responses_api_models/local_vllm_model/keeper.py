"""Run a command. End it and all its descendants when this process or its parent process ends.

`python keeper.py PARENT_PID GRACE_S COMMAND …` uses only the standard library, so that it starts fast.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IS_LINUX = sys.platform == "linux"
POLL_S = 0.5
STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def main() -> int:
    """Run the command. Return its exit code, or 128 plus the number of the signal that ended it."""
    parent, grace_s, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Make this process a subreaper: descendants become its children when their parents end. So it can also end those
    # that have left the command's process group.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)

    def begin() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)

    try:
        # This process is single-threaded, as `preexec_fn` requires.
        process = subprocess.Popen(command, start_new_session=True, preexec_fn=begin)  # noqa: PLW1509
    except OSError as error:
        print(f"cannot start '{command[0]}': {error}", file=sys.stderr)  # noqa: T201 - into the log
        return 127
    with process:
        while process.poll() is None and os.getppid() == parent and not _must_stop():
            pass
        _end(process, grace_s)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _prctl(option: int, value: int) -> None:
    if IS_LINUX:
        ctypes.CDLL(None).prctl(option, value)


def _must_stop() -> bool:
    """Wait up to `POLL_S` seconds for a stop signal, and return whether one arrived.

    The wait is short so that the caller can also check the parent's pid. PR_SET_PDEATHSIG alone is unreliable,
    because it depends on the thread that started this process.
    """
    if hasattr(signal, "sigtimedwait"):
        return signal.sigtimedwait(STOPS, POLL_S) is not None
    time.sleep(POLL_S)
    return bool(signal.sigpending() & STOPS)


def _end(process: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """End the command and its descendants with SIGTERM, and after the grace period with SIGKILL."""
    group = process.pid
    _signal(group, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while time.monotonic() < until and (process.poll() is None or _descendants()):
        _reap(group)
        time.sleep(0.05)
    _signal(group, signal.SIGKILL)
    while _descendants():
        _signal(group, signal.SIGKILL)
        process.poll()
        _reap(group)
        time.sleep(0.05)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
    for pid in _descendants():
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap(group: int) -> None:
    """Reap adopted children that have ended. `Popen` reaps the command itself."""
    for pid in _descendants():
        if pid != group:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _descendants() -> list[int]:
    """Return the pids of this process's descendants. The list is empty on systems other than Linux."""
    if not IS_LINUX:
        return []
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # Split after the last bracket, because the process name in brackets may contain brackets and spaces.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())
    return found


if __name__ == "__main__":
    sys.exit(main())

"""The first process of a container: it runs a command, forwards signals to it and ends with its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

NOT_FORWARDED = {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
NOT_FOUND = 127
NOT_EXECUTABLE = 126


def main(words: list[str]) -> int:
    """Run a command and return its exit code: 128 plus the signal's number if a signal ended it.

    The kernel does not deliver signals to a container's first process that it does not handle, and never reaps the
    orphans that this process inherits.
    """
    try:
        # In its own process group, so that Ctrl-C at a terminal reaches the command once.
        process = subprocess.Popen(words, process_group=0)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}. Name a command of the image, such as `ng version`.", file=sys.stderr)  # noqa: T201
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    _give_terminal(process.pid)
    for number in signal.valid_signals() - NOT_FORWARDED:
        _forward(number, process.pid)
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _forward(number: int, pid: int) -> None:
    def send(number: int, frame: FrameType | None) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    try:
        signal.signal(number, send)
    except (OSError, ValueError):
        # The C library reserves some real-time signals.
        return


def _give_terminal(group: int) -> None:
    """Let the command read from the terminal, if there is one."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    if os.isatty(0):
        os.tcsetpgrp(0, group)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["ng", "--help"]))

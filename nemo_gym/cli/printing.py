"""The output of commands: results on standard output, notes on standard error."""

from __future__ import annotations

import os
import signal
import sys


def say(text: str) -> None:
    """Print to standard output."""
    print(text, flush=True)  # noqa: T201 - the CLI prints


def note(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the CLI prints


def print_line(server: str, line: str) -> None:
    """Print one line of a server's log; if the output pipe is closed, end the run."""
    try:
        print(f"({server}) {line}", flush=True)  # noqa: T201 - the CLI prints
    except BrokenPipeError:
        discard_output()
        os.kill(os.getpid(), signal.SIGTERM)


def discard_output() -> None:
    """Discard all further output, because the reader of the pipe has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

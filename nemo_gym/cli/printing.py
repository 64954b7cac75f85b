"""The output of commands: results on standard output, notes on standard error.

Texts by models and servers are not trusted, so control characters are made visible.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

import orjson

from nemo_gym.text import visible, visible_json


def say(text: str) -> None:
    """Print to standard output."""
    print(visible(text), flush=True)  # noqa: T201 - the CLI prints


def say_json(value: Any) -> None:
    """Print a value to standard output as JSON."""
    written = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    print(visible_json(written), flush=True)  # noqa: T201 - the CLI prints


def say_document(text: str, escape: Callable[[str], str] = visible) -> None:
    """Write the content of a file to standard output: unchanged to a file or pipe, but escaped at a terminal."""
    sys.stdout.write(escape(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Print to standard error."""
    print(visible(text), file=sys.stderr, flush=True)  # noqa: T201 - the CLI prints


def print_line(server: str, line: str) -> None:
    """Print one line of a server's log; if the output pipe is closed, end the run."""
    try:
        say(f"({server}) {line}")
    except BrokenPipeError:
        discard_output()
        os.kill(os.getpid(), signal.SIGTERM)


def check_reader() -> None:
    """Raise `BrokenPipeError` if the reader of the output pipe has closed it, which otherwise only a write shows."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    if any(event & select.POLLERR for _, event in output.poll(0)):
        raise BrokenPipeError


def discard_output() -> None:
    """Discard all further output, because the reader of the pipe has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

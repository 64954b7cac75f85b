"""Entry point of a server process, forked or spawned. It reads its settings from a pipe and logs to another pipe."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn

import pydantic
from pydantic import TypeAdapter

from nemo_gym.config.process import ChildSettings, HeadSettings
from nemo_gym.http.open_files import raise_open_files_limit
from nemo_gym.paths import PACKAGE_DIR
from nemo_gym.process.head import Head, update_instances
from nemo_gym.process.serve import Report, log_to_stderr, serve, serve_app

PR_SET_PDEATHSIG = 1
PARENT_POLL_S = 0.5
MACHINERY = (PACKAGE_DIR, Path(importlib.__file__).parent, Path(pydantic.__file__).parent)
"""Folders of framework code, whose frames are removed from the start of a traceback."""


class Descriptors(NamedTuple):
    """The open file descriptors that the launcher passes to a server process."""

    settings: int
    report: int
    listeners: tuple[int, ...]


def run_child(descriptors: Descriptors) -> int:
    """Run the server that the settings describe. Return the process's exit code."""
    raise_open_files_limit()
    for descriptor in (descriptors.settings, descriptors.report, *descriptors.listeners):
        os.set_inheritable(descriptor, False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A pipe is block-buffered by default. Line buffering keeps an author's prints and errors in order.
        sys.stdout.reconfigure(line_buffering=True)
    pipe = os.fdopen(descriptors.settings, "rb")
    settings: ChildSettings = TypeAdapter(ChildSettings).validate_json(pipe.readline())
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors.listeners]
    report = Report(descriptors.report)
    # The launcher takes an open report pipe as a sign of a live server, so the server's forked children must close it.
    os.register_at_fork(after_in_child=report.close)
    try:
        if isinstance(settings, HeadSettings):
            return _serve_head(settings, pipe, listeners, report)
        pipe.close()
        return serve(settings, listeners, report)
    except SystemExit as stop:
        return _code_of(stop)
    except Exception as error:  # noqa: BLE001
        # Print the traceback to the log, because the launcher shows the log when the process has ended.
        traceback.print_exception(error.with_traceback(_authors_part(error)))
        return 1


def leave(code: int) -> NoReturn:
    """End this process at once, without waiting for threads that a server left running."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _code_of(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _authors_part(error: Exception) -> TracebackType | None:
    """Return the part of the traceback that starts in the author's file, without the framework's frames above it.

    If there are only frames of the framework, return the whole traceback, or None for a syntax error.
    """
    frame = error.__traceback__
    while frame is not None and _is_machinery(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return frame or (None if isinstance(error, SyntaxError) else error.__traceback__)


def _is_machinery(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or any(each in Path(filename).parents for each in MACHINERY)


def _serve_head(
    settings: HeadSettings, updates: Iterable[bytes], listeners: list[socket.socket], report: Report
) -> int:
    log_to_stderr()
    threading.Thread(target=update_instances, args=(settings, updates), name="server updates", daemon=True).start()
    return serve_app(Head(settings).app(), listeners, report, tls=settings.tls)


def die_with_forker(parent: int) -> None:
    """Let the kernel kill this process when the forking thread of `parent` ends (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _die_with_parent(parent: int) -> None:
    # Poll the parent, because the kernel's signal would only report the end of the thread that spawned this process.
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        # Kill the whole group, so that the processes that this process has started end, too.
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def main() -> NoReturn:
    """Run a spawned server process. The command line has the parent's pid and the numbers of the descriptors."""
    parent, settings, report, *listeners = (int(number) for number in sys.argv[1:])
    _die_with_parent(parent)
    leave(run_child(Descriptors(settings, report, tuple(listeners))))


if __name__ == "__main__":
    main()

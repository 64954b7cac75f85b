"""What a worker process of `WorkerPool` does: call the functions it is told to, one after the other.

It is run as a script, with the standard library only, so that it starts in some 20 ms; what its functions need is
imported when they are first called.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

PR_SET_PDEATHSIG = 1
GRACE_S = 5.0
"""The parent ends a job at its deadline; where there is no parent any more, the worker ends itself this much later."""

READY, BEGUN, RETURNED, RAISED, OUT_OF_MEMORY = b"ready", b"begun", b"returned", b"raised", b"out of memory"


def work(connection: Connection) -> None:
    """Answer calls until the parent closes the connection."""
    settings = pickle.loads(connection.recv_bytes())
    _die_with(settings["parent"])
    _limit_memory(settings["memory_limit_bytes"])
    sys.path[:] = settings["path"]
    if settings["prepare"]:
        _function(settings["prepare"])()
    connection.send_bytes(READY)
    while True:
        try:
            name, deadline_s = pickle.loads(connection.recv_bytes())
            arguments = connection.recv_bytes()
        except EOFError:
            return
        for part in _answer(connection, name, arguments, deadline_s):
            connection.send_bytes(part)


def _answer(connection: Connection, name: str, pickled: bytes, deadline_s: float) -> tuple[bytes, bytes]:
    try:
        function = _function(name)
        arguments = pickle.loads(pickled)
        connection.send_bytes(BEGUN)
        # A thread in C, which ends this process even while a job keeps the interpreter to itself.
        faulthandler.dump_traceback_later(deadline_s + GRACE_S, exit=True)
        try:
            return RETURNED, pickle.dumps(function(*arguments))
        finally:
            faulthandler.cancel_dump_traceback_later()
    except MemoryError:
        return OUT_OF_MEMORY, b""
    except Exception as error:  # noqa: BLE001 - whatever a job raises is its caller's to hear
        return RAISED, _pickled(error)


def _pickled(error: Exception) -> bytes:
    error.add_note("In a worker process:\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip())
    try:
        pickle.loads(told := pickle.dumps(error.with_traceback(None)))
    except Exception:  # noqa: BLE001 - an error that cannot travel is told by its text
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return told


def _function(name: str) -> Callable[..., Any]:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


def _die_with(parent: int) -> None:
    """Be killed by the kernel when the thread that started this process ends (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _limit_memory(limit_bytes: int | None) -> None:
    if limit_bytes is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def main() -> None:
    """The connection's descriptor is on the command line; everything else comes through it."""
    # What a library prints belongs into the server's log.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    # The connection ends with its parent, and to find it gone is no error. The descriptor itself stays open: the
    # parent must not take a worker for gone before it has its exit code.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        work(Connection(os.dup(descriptor)))


if __name__ == "__main__":
    main()

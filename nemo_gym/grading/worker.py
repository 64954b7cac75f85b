"""The script that a worker process of `WorkerPool` runs: it calls one function after another.

It imports only the standard library and the lazy root of this package, so it starts fast. The modules of a function
are imported when it is called for the first time.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import pkgutil
import resource
import signal
import sys
import traceback
from multiprocessing.connection import Connection

PR_SET_PDEATHSIG = 1
GRACE_S = 5.0
"""Seconds past the deadline after which a worker exits by itself. Normally its parent kills it at the deadline."""

READY, BEGUN, RETURNED, RAISED, OUT_OF_MEMORY = b"ready", b"begun", b"returned", b"raised", b"out of memory"


def work(connection: Connection) -> None:
    """Receive the settings, then answer calls until the parent closes the connection."""
    settings = pickle.loads(connection.recv_bytes())
    _die_with(settings["parent"])
    if (limit_bytes := settings["memory_limit_bytes"]) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    # Import the parent's package, because a search root may contain another one of the same name.
    sys.path[:] = [settings["package"], *sys.path]
    importlib.import_module("nemo_gym")
    sys.path[:] = settings["path"]
    if settings["prepare"]:
        pkgutil.resolve_name(settings["prepare"])()
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
        function = pkgutil.resolve_name(name)
        arguments = pickle.loads(pickled)
        connection.send_bytes(BEGUN)
        # This timer runs in a C thread, so it ends the process even if the called function holds the GIL.
        faulthandler.dump_traceback_later(deadline_s + GRACE_S, exit=True)
        try:
            return RETURNED, pickle.dumps(function(*arguments))
        finally:
            faulthandler.cancel_dump_traceback_later()
    except MemoryError:
        return OUT_OF_MEMORY, b""
    except Exception as error:  # noqa: BLE001 - any exception of a job is passed to its caller
        return RAISED, _pickled(error)


def _pickled(error: Exception) -> bytes:
    error.add_note("In a worker process:\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip())
    try:
        pickle.loads(pickled := pickle.dumps(error.with_traceback(None)))
    except Exception:  # noqa: BLE001 - an exception that cannot be pickled is replaced by its text
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return pickled


def _die_with(parent: int) -> None:
    """Make the kernel kill this process when the thread that started it ends (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Serve the connection whose file descriptor is the only command-line argument."""
    # Redirect stdout to stderr, so that output of libraries reaches the server's log.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    # A broken connection is not an error: the parent has closed it or ended. Use a duplicate and keep the original
    # descriptor open, so that the parent does not see the connection end before it can see the exit code.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        work(Connection(os.dup(descriptor)))


if __name__ == "__main__":
    main()

"""The first lines of a server's process, forked or spawned: settings come through a pipe, logs go into one."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import NamedTuple

from nemo_gym.servers.head import HeadSettings, head_app
from nemo_gym.servers.serve import (
    ProcessSettings,
    Report,
    ReportingServer,
    raise_open_files_limit,
    serve,
    uvicorn_config,
)


class Descriptors(NamedTuple):
    """What the launcher hands over, as open file descriptors."""

    listener: int
    settings: int
    report: int


def run_child(descriptors: Descriptors) -> int:
    """Be the server that the settings describe; the process's exit code."""
    with os.fdopen(descriptors.settings, "rb") as pipe:
        message = json.loads(pipe.read())
    listener = socket.socket(fileno=descriptors.listener)
    report = Report(descriptors.report)
    try:
        if message["kind"] == "head":
            return _serve_head(HeadSettings.model_validate(message["settings"]), listener, report)
        return serve(ProcessSettings.model_validate(message["settings"]), listener, report)
    except Exception:  # noqa: BLE001
        # The last stop before the process ends: the launcher shows this log.
        traceback.print_exc()
        return 1


def _serve_head(settings: HeadSettings, listener: socket.socket, report: Report) -> int:
    raise_open_files_limit()
    server = ReportingServer(uvicorn_config(head_app(settings)), report)
    server.run(sockets=[listener])
    return 0 if server.started else 1


PR_SET_PDEATHSIG = 1
PARENT_POLL_S = 0.5


def die_with_forker(parent: int) -> None:
    """Be killed by the kernel when the forking thread of `parent` ends (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _die_with_parent() -> None:
    # The kernel's own signal follows the spawning thread, which may end long before its process does.
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def main() -> int:
    """A spawned child: the descriptors' numbers are on the command line, nothing else is."""
    _die_with_parent()
    return run_child(Descriptors(*(int(number) for number in sys.argv[1:4])))


if __name__ == "__main__":
    sys.exit(main())

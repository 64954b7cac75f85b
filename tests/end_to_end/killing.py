"""Kill a server of a run that restarts its servers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.conftest import PATIENCE_S


def kill(pids: Callable[[], list[int]]) -> None:
    """Kill one of a server's processes. The head server may list a restarted one a moment after it has answered."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for pid in pids():
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    os.kill(pid, signal.SIGKILL)
                    return
        assert time.monotonic() < deadline, "no process of the server is running"
        time.sleep(0.02)

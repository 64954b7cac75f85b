"""The starter that uses a fresh interpreter per server: slower than forking, but it works everywhere."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from nemo_gym.config.environment import shown_environment
from nemo_gym.launcher.base import ProcessOrder


class SpawnStarter:
    """A starter that runs `python -m nemo_gym.process.child` with the interpreter `python`."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, order: ProcessOrder) -> int:
        handed = (order.settings, order.report, *order.listeners)
        process = subprocess.Popen(
            # `-P` keeps the working folder off the path, because it may contain another package named nemo_gym.
            [self._python, "-P", "-m", "nemo_gym.process.child", str(os.getpid()), *map(str, handed)],
            pass_fds=handed,
            stdin=subprocess.DEVNULL,
            env=shown_environment(),
            stdout=order.log,
            stderr=order.log,
            start_new_session=True,
        )
        self._processes[process.pid] = process
        return process.pid

    def signal(self, pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)

    def exit_code(self, pid: int) -> int | None:
        process = self._processes[pid]
        was_running = process.returncode is None
        if process.poll() is not None and was_running:
            # Kill the process group, because child processes of a server must not outlive it.
            self.signal(pid, signal.SIGKILL)
        return process.returncode

    def close(self) -> None:
        for pid, process in self._processes.items():
            # Do not poll first. Until `wait`, the pid cannot be reused, so the signal cannot hit another group.
            if process.returncode is None:
                self.signal(pid, signal.SIGKILL)
                process.wait()

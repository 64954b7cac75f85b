"""A process that has imported everything already and forks servers: each is up in milliseconds, memory is shared.

It never sees a configuration: a server's settings go through a pipe that only the new child reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from nemo_gym.memory import settle_memory
from nemo_gym.process.child import Descriptors, die_with_forker, leave, run_child
from nemo_gym.web.app import ServerApp

PRELOADED = (
    "nemo_gym.servers.agent",
    "nemo_gym.servers.model",
    "nemo_gym.servers.resources",
    "uvicorn.loops.uvloop",
    "uvicorn.lifespan.on",
    "nemo_gym.servers.conversing",
    "nemo_gym.http.endpoint",
)
DESCRIPTORS = 253
"""Settings, report and log come with every order, and its listeners: as many as one message may bring."""
REAP_EVERY_S = 5.0
SWEEP_LIMIT_S = 1.5
PR_SET_CHILD_SUBREAPER = 36


class _WarmProcess:
    """The warm process itself: one thread, answering one message at a time."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.exit_codes: dict[int, int | None] = {}

    def run(self) -> None:
        # What a server starts and leaves behind becomes our child, however far it went from the server's group.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.control.settimeout(REAP_EVERY_S)
        for module in PRELOADED:
            importlib.import_module(module)
        _make_an_app()
        settle_memory()
        try:
            # A launcher that is interrupted leaves before it has heard the answer to its last question.
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                self._serve()
        finally:
            _kill_all_children()

    def _serve(self) -> None:
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self.control, 65536, DESCRIPTORS)
            except TimeoutError:
                self._reap()
                continue
            self._reap()
            if not message:
                return
            answer = self._answer(json.loads(message), descriptors)
            self.control.send(json.dumps(answer).encode())

    def _answer(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        if message["do"] == "start":
            try:
                return {"pid": self._fork(*descriptors)}
            except OSError as error:
                return {"error": str(error)}
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        if message["do"] == "exit_code":
            return {"code": self.exit_codes.get(message["pid"])}
        _signal_group(message["pid"], signal.Signals(message["number"]))
        return {}

    def _fork(self, settings: int, report: int, log: int, *listeners: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._become_child(parent, log)
                code = run_child(Descriptors(settings, report, listeners))
            finally:
                leave(code)
        self.exit_codes[pid] = None
        return pid

    def _become_child(self, parent: int, log: int) -> None:
        os.setsid()
        # Dies with the warm process, which dies with the launcher: nothing is left behind by a SIGKILL.
        die_with_forker(parent)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.control.close()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self.exit_codes:
                    self.exit_codes[pid] = os.waitstatus_to_exitcode(status)
                    # What the server itself started must not outlive it.
                    _signal_group(pid, signal.SIGKILL)


def _make_an_app() -> None:
    """FastAPI imports a good part of what it needs with the first route of the first app: megabytes, to be shared."""

    async def route(body: dict[str, Any]) -> dict[str, Any]:
        return body

    ServerApp().post("/")(route)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kill_all_children() -> None:
    """Kill the servers and, one generation after the other, whatever they started."""
    give_up_at = time.monotonic() + SWEEP_LIMIT_S
    while (children := _children_of(os.getpid())) and time.monotonic() < give_up_at:
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def _children_of(parent: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # pid (name) state parent …; only the name may hold blanks and brackets.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                children.append(int(stat.parent.name))
    return children


def main() -> None:
    """Serve the launcher on the socket whose descriptor is on the command line, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _WarmProcess(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()

"""A process that has imported everything and forks servers, so that they start in milliseconds and share memory.

This warm process itself never loads a configuration. Each forked child reads the settings of its server from a pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from nemo_gym.jsonl import JsonObject
from nemo_gym.memory import settle_memory

PRELOADED = (
    "nemo_gym.process.child",
    "nemo_gym.servers.agent",
    "nemo_gym.servers.model",
    "nemo_gym.servers.resources",
    "uvicorn.loops.uvloop",
    "uvicorn.lifespan.on",
    "nemo_gym.servers.conversing",
    "nemo_gym.http.endpoint",
)
DESCRIPTORS = 253
"""Maximum number of descriptors in one message: the pipes for settings, report and log, and the listeners."""
REAP_EVERY_S = 5.0
SWEEP_LIMIT_S = 1.5
PR_SET_CHILD_SUBREAPER = 36


class _WarmProcess:
    """The loop of the warm process, which forks servers. A single thread answers the launcher's messages in order."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.exit_codes: dict[int, int | None] = {}

    def run(self) -> None:
        # Become a subreaper. Processes that outlive their server then become children of this process, which can kill
        # them even if they left the server's group.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.control.settimeout(REAP_EVERY_S)
        # Disable garbage collection, which would take a fifth of the import time. Imports leave little garbage.
        gc.disable()
        for module in PRELOADED:
            importlib.import_module(module)
        _make_an_app()
        settle_memory(collects=False)
        gc.enable()
        try:
            # Ignore a closed socket, because an interrupted launcher may exit before it has read the last answer.
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

    def _answer(self, message: JsonObject, descriptors: list[int]) -> JsonObject:
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
        from nemo_gym.process.child import Descriptors, leave, run_child

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
        from nemo_gym.process.child import die_with_forker

        os.setsid()
        # The child dies with the warm process, which dies with the launcher. So no process is left running
        # if the launcher receives SIGKILL.
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
                    # Kill the rest of the group, because processes that a server started must not outlive it.
                    _signal_group(pid, signal.SIGKILL)


def _make_an_app() -> None:
    """Create an app with a route. FastAPI then imports megabytes of modules, which all forked servers share."""
    from nemo_gym.web.app import ServerApp

    async def route(body: JsonObject) -> JsonObject:
        return body

    ServerApp().post("/")(route)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kill_all_children() -> None:
    """Kill the servers and then, generation by generation, the processes that they started."""
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
            # The format is `pid (name) state parent …`. Split after the last bracket, because the name may contain
            # brackets and spaces.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                children.append(int(stat.parent.name))
    return children


def main() -> None:
    """Answer the launcher's messages until it closes the socket. The argument is the socket's descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _WarmProcess(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()

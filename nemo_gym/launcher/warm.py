"""The launcher's side of the warm process, which forks servers to avoid a fresh interpreter for each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nemo_gym.config.environment import shown_environment
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.base import ProcessOrder
from nemo_gym.launcher.endings import ended

if TYPE_CHECKING:
    # Import this only for type checking, because each import here delays the start of the warm process.
    from nemo_gym.jsonl import JsonObject

WARM_MODULE = "nemo_gym.process.fork_server"
ANSWER_TIMEOUT_S = 60.0


def is_supported() -> bool:
    """Return whether this platform can safely fork a warm process."""
    return sys.platform == "linux" and hasattr(socket, "send_fds")


class WarmStarter:
    """A starter that lets a warm process fork servers. That process imports its modules while the config is loaded.

    If the warm process dies, all its servers die with it. It is then replaced, so that they can be started again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        """The servers of the current warm process that are not known to have ended."""
        self._lost: set[int] = set()
        """The servers that died with an earlier warm process."""
        self._has_started = False
        self._is_closed = False
        self._begin()

    def start(self, order: ProcessOrder) -> int:
        handed = [order.settings, order.report, order.log, *order.listeners]
        with self._lock:
            self._has_started = True
            answer = self._ask({"do": "start"}, handed)
            if answer is None and not self._is_closed:
                self._replace()
                answer = self._ask({"do": "start"}, handed)
            if answer is None:
                raise LaunchError(f"the process that starts the servers {self._how_it_ended()}. Start them again.")
            pid = int(answer["pid"])
            self._running.add(pid)
            # The system may use the number of a lost process again.
            self._lost.discard(pid)
        return pid

    def signal(self, pid: int, number: signal.Signals) -> None:
        with self._lock:
            if pid not in self._lost:
                self._ask({"do": "signal", "pid": pid, "number": int(number)})

    def exit_code(self, pid: int) -> int | None:
        with self._lock:
            answer = None if pid in self._lost else self._ask({"do": "exit_code", "pid": pid})
            if answer is None:
                self._lost.add(pid)
                return -signal.SIGKILL
            code: int | None = answer["code"]
            if code is not None:
                self._running.discard(pid)
            return code

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._socket.close()
        if not self._has_started:
            # Kill the process, because it may still be busy with its imports.
            self._process.kill()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(ANSWER_TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                # `-P` keeps the working folder off the path, because it may contain another package named nemo_gym.
                [sys.executable, "-P", "-m", WARM_MODULE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=shown_environment(),
                # Use a separate session, so that Ctrl-C reaches only the launcher, which then stops all servers.
                start_new_session=True,
            )
        self._socket = ours

    def _replace(self) -> None:
        """Start another warm process. Kill what the servers of the dead one have started."""
        self._how_it_ended()
        self._process.kill()
        self._process.wait()
        self._socket.close()
        for pid in self._running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._lost |= self._running
        self._running.clear()
        self._begin()

    def _how_it_ended(self) -> str:
        try:
            return ended(self._process.wait(1.0))
        except subprocess.TimeoutExpired:
            return "closed its connection"

    def _ask(self, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> JsonObject | None:
        """Return the answer of the warm process, or None if the process is dead."""
        try:
            socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
            answer = self._socket.recv(65536)
        except TimeoutError as error:
            raise LaunchError(
                f"the process that starts the servers does not answer ({error}). Start them again."
            ) from error
        except OSError:
            answer = b""
        if not answer:
            return None
        reply: JsonObject = json.loads(answer)
        if "error" in reply:
            raise LaunchError(f"a server's process could not be started: {reply['error']}")
        return reply

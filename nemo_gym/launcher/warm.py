"""The launcher's side of the warm process, which forks servers to avoid a fresh interpreter for each."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
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
    """A starter that lets a warm process fork servers. That process imports its modules while the config is loaded."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(ANSWER_TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WARM_MODULE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=shown_environment(),
                # Use a separate session, so that Ctrl-C reaches only the launcher, which then stops all servers.
                start_new_session=True,
            )
        self._has_servers = False
        self._socket = ours
        self._lock = threading.Lock()

    def start(self, order: ProcessOrder) -> int:
        self._has_servers = True
        handed = [order.settings, order.report, order.log, *order.listeners]
        return int(self._ask({"do": "start"}, handed)["pid"])

    def signal(self, pid: int, number: signal.Signals) -> None:
        self._ask({"do": "signal", "pid": pid, "number": int(number)})

    def exit_code(self, pid: int) -> int | None:
        code = self._ask({"do": "exit_code", "pid": pid})["code"]
        return None if code is None else int(code)

    def close(self) -> None:
        with self._lock:
            self._socket.close()
        if not self._has_servers:
            # Kill the process, because it may still be busy with its imports.
            self._process.kill()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _how_it_ended(self) -> str:
        try:
            return ended(self._process.wait(1.0))
        except subprocess.TimeoutExpired:
            return "closed its connection"

    def _ask(self, message: JsonObject, descriptors: Sequence[int] = ()) -> JsonObject:
        with self._lock:
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
            raise LaunchError(
                f"the process that starts the servers {self._how_it_ended()}, so all servers ended. Start them again."
            )
        reply: JsonObject = json.loads(answer)
        if "error" in reply:
            raise LaunchError(f"a server's process could not be started: {reply['error']}")
        return reply

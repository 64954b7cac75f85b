"""The sockets of a run, opened before its servers start so that all addresses are known."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nemo_gym.calls.running import is_alive, live_runs
from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.models import HeadConfig, WrittenAddress
from nemo_gym.config.ports import bind, share
from nemo_gym.config.run_settings import PortRange
from nemo_gym.errors import PortTakenError

HEAD = "head_server"
PREFIX = "nemo_gym_sockets_"
BACKLOG = 4096
LONGEST_FOLDER = 60
NEAR_PORTS = 20
"""The number of further ports that the head server tries if its port is taken."""


def bind_head(head: HeadConfig, notice: Callable[[str], None], written: WrittenAddress) -> socket.socket:
    """Return the head server's socket. If the default port is taken, use another port and report it."""
    if head.expose_secrets and not is_loopback(head.host):
        notice(
            f"head_server.expose_secrets is ignored because other machines can reach {head.host}. Secrets stay masked "
            "unless head_server.host is 127.0.0.1."
        )
    try:
        return listen(head.host, head.port, HEAD, written=written)
    except PortTakenError:
        if head.port_is_fixed:
            raise
    listener = _listen_near(head, written)
    # Commands find the user's own runs by themselves, so only another's use of the port is news.
    if any(each.port == head.port for each in live_runs()):
        return listener
    notice(
        f"port {head.port} is taken, perhaps by another run. The head server listens on {listener.getsockname()[1]}. "
        "Commands in this folder find it automatically."
    )
    return listener


def _listen_near(head: HeadConfig, written: WrittenAddress) -> socket.socket:
    """Return a socket on one of the ports after the head server's, or on any free port if all of them are taken."""
    for port in range(head.port + 1, min(head.port + NEAR_PORTS, 65535) + 1):
        with contextlib.suppress(PortTakenError):
            return listen(head.host, port, HEAD, written=written)
    return listen(head.host, 0, HEAD, written=written)


def listen(
    host: str,
    port: int,
    instance: str,
    port_range: PortRange | None = None,
    *,
    written: WrittenAddress,
    is_shared: bool = False,
) -> socket.socket:
    """Return a listening socket for an instance. Raise `PortTakenError` if another process has the port."""
    listener = bind(host, port, instance=instance, port_range=port_range, written=written, is_shared=is_shared)
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        # Report a taken port. Two processes may bind the same port, but only one of them can listen.
        listener.close()
        raise PortTakenError(
            f"{written.port or instance}: another process has just started to listen on port {port} of {host}. "
            f"Start the run again, or give {instance} another port."
        ) from error
    return listener


def listen_too(first: socket.socket) -> socket.socket:
    """Return another listening socket at the address of a shared one."""
    another = share(*first.getsockname()[:2])
    another.listen(BACKLOG)
    return another


def _short_folder() -> Path:
    """Return the folder for temporary files, or /tmp if that folder's path is too long for a unix socket."""
    folder = tempfile.gettempdir()
    return Path(folder if len(folder) <= LONGEST_FOLDER else "/tmp")


def _sweep() -> None:
    """Remove the sockets of launchers that were killed."""
    for folder in _short_folder().glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("_")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not is_alive(int(pid)) and folder.stat().st_uid == os.getuid() and _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    """Return whether no process listens on a folder's sockets.

    The pid in the folder's name does not prove that, because containers have their own pids but may share the folder.
    """
    for path in folder.iterdir():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            if caller.connect_ex(str(path)) == 0:
                return False
    return True


class Doors(NamedTuple):
    """The listening sockets of one server, indexed by process number."""

    public: list[socket.socket]
    """One socket per process, all at the same address."""
    private: list[socket.socket]
    """One unix socket per process, each at its own path; empty if there is only one process."""
    shortcut: socket.socket | None = None
    """A unix socket for callers on this machine; None if the server has several processes."""

    @property
    def port(self) -> int:
        port: int = self.public[0].getsockname()[1]
        return port

    @property
    def private_paths(self) -> list[str]:
        return [listener.getsockname() for listener in self.private]

    def of_process(self, number: int) -> list[socket.socket]:
        own = [self.public[number], *self.private[number : number + 1]]
        return own if self.shortcut is None else [*own, self.shortcut]

    def close(self) -> None:
        for listener in (*self.public, *self.private, *([self.shortcut] if self.shortcut else [])):
            listener.close()


class PrivateSockets:
    """Unix sockets in a private folder, each for one process only."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._count = 0

    def listen(self) -> socket.socket:
        if self._folder is None:
            _sweep()
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}_", dir=_short_folder()))
        self._count += 1
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._folder / f"{self._count}.sock"))
        listener.listen(BACKLOG)
        return listener

    def close(self) -> None:
        """Remove the folder of the sockets."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

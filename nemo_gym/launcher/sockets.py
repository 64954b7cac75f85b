"""The sockets of a run, opened before its servers are: so each can be told where all others will be."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nemo_gym.calls.running import is_alive
from nemo_gym.config import HeadConfig, PortRange, WrittenAddress, bind, share
from nemo_gym.config.access import is_loopback
from nemo_gym.errors import PortTakenError

HEAD = "head_server"
PREFIX = "nemo_gym_sockets_"
BACKLOG = 4096
LONGEST_FOLDER = 60
NEAR_PORTS = 20
"""How many ports behind a taken one the head server tries."""


def bind_head(head: HeadConfig, notice: Callable[[str], None], written: WrittenAddress) -> socket.socket:
    """The head server's socket; where its port was not asked for and is taken, on another one, which is told."""
    if head.expose_secrets and not is_loopback(head.host):
        notice(
            f"head_server.expose_secrets is not followed: others can reach {head.host}. Secrets stay masked, unless "
            "head_server.host is 127.0.0.1."
        )
    try:
        return listen(head.host, head.port, HEAD, written=written)
    except PortTakenError:
        if head.port_is_fixed:
            raise
    listener = _listen_near(head, written)
    notice(
        f"port {head.port} is taken, by another run perhaps: the head server listens on {listener.getsockname()[1]}. "
        "Commands of this folder find it by themselves."
    )
    return listener


def _listen_near(head: HeadConfig, written: WrittenAddress) -> socket.socket:
    """A socket on one of the next ports, else on any free one."""
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
    """A listening socket for an instance. Raises `PortTakenError` where another process has the port."""
    listener = bind(host, port, instance=instance, port_range=port_range, written=written, is_shared=is_shared)
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        # Two may bind a port at the same moment; only one of them listens.
        listener.close()
        raise PortTakenError(
            f"{written.port or instance}: another process began to listen on port {port} of {host} at this very "
            f"moment. Start again, or give {instance} another port."
        ) from error
    return listener


def listen_too(first: socket.socket) -> socket.socket:
    """One more listening socket at the address of one that is shared."""
    host, port = first.getsockname()[:2]
    another = share(host, port)
    another.listen(BACKLOG)
    return another


def _short_folder() -> Path:
    """Where sockets may be: a path of one has a hundred letters, and the folder for temporary files may have more."""
    folder = tempfile.gettempdir()
    return Path(folder if len(folder) <= LONGEST_FOLDER else "/tmp")


def _sweep() -> None:
    """Remove what a launcher left that was killed."""
    for folder in _short_folder().glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("_")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not is_alive(int(pid)) and folder.stat().st_uid == os.getuid() and _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    """Whether nobody listens there: containers may share the folder, and do not know each other's processes."""
    for path in folder.iterdir():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            if caller.connect_ex(str(path)) == 0:
                return False
    return True


class Doors(NamedTuple):
    """The listening sockets of one server, by the numbers of the processes that serve it."""

    public: list[socket.socket]
    """All at the same address."""
    private: list[socket.socket]
    """At each, one process and no other is reached; none where there is but one."""
    shortcut: socket.socket | None = None
    """For callers on this machine; None where several processes serve it, or one with other servers."""

    @property
    def port(self) -> int:
        """Where the server is called."""
        port: int = self.public[0].getsockname()[1]
        return port

    @property
    def private_paths(self) -> list[str]:
        """Where each process alone is called."""
        return [listener.getsockname() for listener in self.private]

    def of_process(self, number: int) -> list[socket.socket]:
        """What one of the processes listens at."""
        own = [self.public[number], *self.private[number : number + 1]]
        return own if self.shortcut is None else [*own, self.shortcut]

    def close(self) -> None:
        """Let nobody in any more."""
        for listener in (*self.public, *self.private, *([self.shortcut] if self.shortcut else [])):
            listener.close()


class PrivateSockets:
    """Unix sockets, in a folder of this user's own, at each of which one process is reached and no other."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._count = 0

    def listen(self) -> socket.socket:
        """One more of them."""
        if self._folder is None:
            _sweep()
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}_", dir=_short_folder()))
        self._count += 1
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._folder / f"{self._count}.sock"))
        listener.listen(BACKLOG)
        return listener

    def close(self) -> None:
        """Remove them."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

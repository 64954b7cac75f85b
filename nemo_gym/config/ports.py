"""Bind the ports of servers and detect conflicts early."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable
from pathlib import Path

from nemo_gym.config.masking import MASK, is_secret_key, mask_text
from nemo_gym.config.models import (
    DEFAULT_HEAD_SERVER_PORT,
    HeadConfig,
    Origin,
    ServerConfig,
    WrittenAddress,
)
from nemo_gym.config.run_settings import PortRange
from nemo_gym.errors import ConfigError, PortTakenError

NOWHERE = WrittenAddress()

KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""TCP keepalive options. Calls survive a network outage of 10 s. Calls to a lost machine fail after 30 s."""

_RANGE_TRIES = 200
_SHOWN_WORDS = 4
_SHOWN_SIGNS = 80
_ANY_HOST = ("0.0.0.0", "::", "")


def bind(
    host: str,
    port: int,
    *,
    instance: str,
    port_range: PortRange | None = None,
    written: WrittenAddress = NOWHERE,
    is_shared: bool = False,
) -> socket.socket:
    """Return a bound socket that does not listen yet. For port 0, take a free port, from `port_range` if it is given.

    If `is_shared` is set, other processes of this user may bind the port later, but it must be free now.

    Raise PortTakenError if the port is taken. The message names the place that sets the port, or else the instance. It
    also names the process that holds the port, if that process is known. Raise ConfigError for any other error.
    """
    if port == 0 and port_range:
        bound = _bind_in_range(host, port_range, instance, written)
    else:
        try:
            bound = _bound(host, port, is_reusable=True)
        except OSError as error:
            raise _refusal(error, host, port, instance, written) from error
    if not is_shared:
        return bound
    with bound:
        port = bound.getsockname()[1]
    return share(host, port)


def share(host: str, port: int) -> socket.socket:
    """Bind another socket to a shared port. The kernel distributes connections among the sockets of a port."""
    return _bound(host, port, is_reusable=True, is_shared=True)


def check_fixed_ports(servers: Iterable[ServerConfig], head: HeadConfig, head_origin: Origin | None) -> None:
    """Raise PortTakenError if two servers of one configuration request the same address."""
    head_name = "the head server" + (
        "" if head.port_is_fixed else " (by default; move it with --head_server.port PORT)"
    )
    taken: list[tuple[str, int, str, Origin | None]] = [(head.host, head.port, head_name, head_origin)]
    for server in servers:
        if not server.port_is_fixed:
            continue
        origin = server.origins.get("port")
        for host, port, name, first in taken:
            same_host = host == server.host or host in _ANY_HOST or server.host in _ANY_HOST
            if same_host and port == server.port:
                raise PortTakenError(
                    f"{origin}: {server.name} requests port {port}, which {name} already has"
                    f"{f' ({first})' if first else ''}. Give one of them another port, or remove the port to use a "
                    "free one."
                )
        taken.append((server.host, server.port, server.name, origin))


def _bound(host: str, port: int, *, is_reusable: bool, is_shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(is_reusable))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(is_shared))
        notice_lost_machines(sock)
        sock.bind((host, port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def notice_lost_machines(sock: socket.socket) -> None:
    """Make connections to a lost machine fail after 30 s. A listening socket passes this on to its connections."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        # Skip options that the operating system does not have.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _bind_in_range(host: str, ports: PortRange, instance: str, written: WrittenAddress) -> socket.socket:
    # Skip the default port of the head server, so that it stays free for a later run.
    candidates = [port for port in range(ports.low, ports.high + 1) if port != DEFAULT_HEAD_SERVER_PORT]
    for port in random.sample(candidates, min(len(candidates), _RANGE_TRIES)):
        try:
            # Bind without SO_REUSEADDR, because Linux would let two sockets share the port until one listens.
            return _bound(host, port, is_reusable=False)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise _refusal(error, host, 0, instance, written) from error
    raise PortTakenError(
        f"{instance}: no free port on {host} between port_range_low ({ports.low}) and port_range_high ({ports.high}); "
        f"{min(len(candidates), _RANGE_TRIES)} were tried. Widen the range, or stop the processes that hold the ports."
    )


def _refusal(error: OSError, host: str, port: int, instance: str, written: WrittenAddress) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        pid = _holder(port)
        held = f"process {pid} ({_command(pid)})" if pid else "another process"
        return PortTakenError(
            f"{written.port or instance}: port {port} on {host} is held by {held}. Stop it, give {instance} "
            "another port, or remove its port from the configuration to use a free one."
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"{written.port or instance}: this user may not bind port {port}. Use a port from 1024 on.")
    subject = f"{instance} " if written.host else ""
    return ConfigError(
        f"{written.host or instance}: {subject}cannot listen on {host}{f':{port}' if port else ''} "
        f"({error.strerror or error}). "
        "Set the host to an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them."
    )


def _holder(port: int) -> int | None:
    """Return the pid of the process that listens on a port, or None if the process cannot be determined."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{columns[9]}]")
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        try:
            if any(str(handle.readlink()) in inodes for handle in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            # Skip the process, because it has ended or belongs to another user.
            continue
    return None


def _command(pid: int) -> str:
    """Return a short command line of a process, such as `python bin/ng_run --config a.yaml`, with masked secrets."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "already ended"
    program, *words = text.rstrip("\0").split("\0")
    shown = [Path(program).name]
    for before, word in zip([program, *words], words[: _SHOWN_WORDS - 1], strict=False):
        is_secret = before.startswith("-") and "=" not in before and is_secret_key(before)
        shown.append(MASK if is_secret else _shown_word(word))
    line = " ".join(shown)
    return line if len(line) <= _SHOWN_SIGNS else f"{line[: _SHOWN_SIGNS - 1]}…"


def _shown_word(word: str) -> str:
    key, equals, _ = word.partition("=")
    if equals and is_secret_key(key):
        return f"{key}={MASK}"
    return "/".join(Path(word).parts[-2:]) if word.startswith("/") else mask_text(word)

"""Several hosts on one machine: network namespaces on a bridge, each with its own addresses, name and folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from tests.cluster.namespaces import PATIENCE_S, CommandFailed, ip, kill_in, pids_in, remove, within

LOCKS = Path("/run/nemo_gym_test_networks")
"""One file per network. Its process keeps it locked, so that the networks of killed processes are recognized."""
NETWORKS = 250
OWN_FOLDERS = (
    "HOME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
)
"""Environment variables with folders through which programs could find each other."""
RUN_VARIABLES = ("NEMO_GYM", "RAY_")
SLOW_LINK = Path(__file__).with_name("slow_link.py")
RULES = """
table inet dialled {
  set ipv4 { type ipv4_addr . inet_service; flags dynamic; size 65535; }
  set ipv6 { type ipv6_addr . inet_service; flags dynamic; size 65535; }
  chain out {
    type filter hook output priority 0;
    meta nfproto ipv4 tcp flags & (syn|ack) == syn add @ipv4 { ip daddr . tcp dport }
    meta nfproto ipv6 tcp flags & (syn|ack) == syn add @ipv6 { ip6 daddr . tcp dport }
  }
}
"""
"""Netfilter rules that note the addresses to which the processes of a host open connections."""


class Dialled(NamedTuple):
    """An address to which a process of a host opened a connection."""

    address: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return self.address == "::1" or self.address.startswith("127.")


class Host:
    """A network namespace with a cable to the bridge. Its processes see only its own interfaces."""

    def __init__(self, name: str, namespace: str, network: Network, number: int) -> None:
        self.name = name
        """The name by which the other hosts reach it."""
        self.namespace = namespace
        self.ip = f"{network.ipv4}.{number}"
        self.ipv6 = f"{network.ipv6}::{number}"
        self.folder = network.folder / name
        """The working folder of its processes."""
        self._cable = f"{namespace}c"
        self._network = network
        self._processes: list[subprocess.Popen[Any]] = []
        self._slow_link: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """The environment of its processes, in which no file is shared with other hosts through a default folder."""
        own = {name: str(self.folder / name.lower()) for name in OWN_FOLDERS}
        kept = {key: value for key, value in os.environ.items() if not key.startswith(RUN_VARIABLES)}
        return kept | own | {"COLUMNS": "200", "TERM": "dumb"}

    def popen(self, *words: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[Any]:
        """Start a program on this host, in its folder unless `cwd` is given."""
        options.setdefault("cwd", self.folder)
        process = subprocess.Popen([*self._within, *map(str, words)], env=self.env | (env or {}), **options)
        self._processes.append(process)
        return process

    def run(
        self,
        *words: str | Path,
        env: dict[str, str] | None = None,
        check: bool = True,
        timeout_s: float = PATIENCE_S,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on this host and return its output. With `check`, fail if its exit code is not 0."""
        options.setdefault("cwd", self.folder)
        done = subprocess.run(
            [*self._within, *map(str, words)], env=self.env | (env or {}), timeout=timeout_s, capture_output=True,
            text=True, check=False, **options,
        )  # fmt: skip
        assert not check or done.returncode == 0, (
            f"{words} on {self.name}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def pids(self) -> list[int]:
        """Return the processes on this host."""
        return pids_in(self.namespace)

    def kill(self) -> None:
        """Kill every process on this host at once, as a crash of its programs would."""
        for process in self._processes:
            # Perhaps it has not entered the namespace yet.
            process.kill()
        for process in self._processes:
            process.wait(PATIENCE_S)
        self._processes.clear()
        kill_in(self.namespace)

    def power_off(self) -> None:
        """Kill every process after cutting the cable, so that the other hosts get no sign of it."""
        self.cut()
        self.kill()

    def cut(self) -> None:
        """Unplug the network cable."""
        ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        """Plug the network cable in again."""
        ip("link", "set", self._cable, "up")

    def slow(self, delay_ms: float, loss_percent: float = 0.0) -> None:
        """Delay everything that this host sends or receives by this time, and lose this share of the packets."""
        self.fast()
        far, near, middle = f"{self.namespace}f", f"{self.namespace}n", f"{self.namespace}m"
        ip("netns", "add", middle)
        ip("link", "add", far, "type", "veth", "peer", "name", near, "netns", middle)
        ip("link", "set", self._cable, "nomaster", "netns", middle)
        for link in (self._cable, near):
            within(middle, "sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
            ip("-n", middle, "link", "set", link, "up")
        ip("link", "set", far, "master", self._network.bridge, "up")
        program = [sys.executable, str(SLOW_LINK), self._cable, near, str(delay_ms), str(loss_percent)]
        self._slow_link = subprocess.Popen(
            ["ip", "netns", "exec", middle, *program], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert self._slow_link.stdout is not None
        assert self._slow_link.stdout.readline(), "the slow link did not start"

    def fast(self) -> None:
        """Undo `slow`."""
        if self._slow_link is None:
            return
        middle = f"{self.namespace}m"
        self._slow_link.kill()
        self._slow_link.wait(PATIENCE_S)
        assert self._slow_link.stdout is not None
        self._slow_link.stdout.close()
        self._slow_link = None
        ip("-n", middle, "link", "set", self._cable, "netns", str(os.getpid()))
        ip("netns", "delete", middle)
        ip("link", "set", self._cable, "master", self._network.bridge, "up")

    def dialled(self) -> set[Dialled]:
        """Return all addresses to which processes of this host have opened connections, also without success."""
        found = json.loads(within(self.namespace, "nft", "-j", "list", "table", "inet", "dialled"))["nftables"]
        entries = [entry for each in found for entry in each.get("set", {}).get("elem", [])]
        return {Dialled(*entry["concat"]) for entry in entries}

    def listening(self) -> set[int]:
        """Return the TCP ports on which processes of this host listen."""
        lines = within(self.namespace, "ss", "-tlnH").splitlines()
        return {int(line.split()[3].rpartition(":")[2]) for line in lines}

    @property
    def _within(self) -> Sequence[str]:
        # Each command gets its own UTS namespace, so that programs see the name of their host.
        named = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
        return ("ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", named, self.name)

    def open(self) -> None:
        """Create the namespace and plug it in."""
        for name in OWN_FOLDERS:
            (self.folder / name.lower()).mkdir(parents=True, mode=0o700)
        etc = Path("/etc/netns", self.namespace)
        etc.mkdir(parents=True)
        (etc / "hosts").write_text(self._network.hosts_file)
        # A name that is not in the hosts file is unknown at once, instead of after a timeout.
        (etc / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        ip("netns", "add", self.namespace)
        ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        within(self.namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0")
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{self.ip}/24", "dev", "eth0"),
            ("addr", "add", f"{self.ipv6}/64", "dev", "eth0", "nodad"),
            ("link", "set", "eth0", "up"),
        ):
            ip("-n", self.namespace, *words)
        ip("link", "set", self._cable, "master", self._network.bridge, "up")
        within(self.namespace, "nft", "-f", "-", text=RULES)


class Network:
    """A bridge with its hosts. The test's own process reaches the hosts, and they reach it at `ip`."""

    def __init__(self, prefix: str, number: int, lock: TextIO) -> None:
        self.bridge = f"{prefix}{number}"
        self.ipv4 = f"10.213.{number}"
        self.ipv6 = f"fd13:{number}"
        self.ip = f"{self.ipv4}.254"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.bridge}-", dir="/tmp"))
        """A short path, because those of unix sockets are limited to about 100 bytes."""
        self.hosts: list[Host] = []
        self._lock = lock

    @property
    def hosts_file(self) -> str:
        entries = [("127.0.0.1", "localhost"), ("::1", "localhost")]
        entries += [(host.ip, host.name) for host in self.hosts] + [(self.ip, "outside")]
        return "".join(f"{address}\t{name}\n" for address, name in entries)

    def open(self, count: int) -> None:
        """Create the bridge and its hosts, `node1` to `node<count>`."""
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.ip}/24", "dev", self.bridge)
        ip("addr", "add", f"{self.ipv6}::fe/64", "dev", self.bridge, "nodad")
        ip("link", "set", self.bridge, "up")
        numbers = range(1, count + 1)
        self.hosts = [Host(f"node{number}", f"{self.bridge}-{number}", self, number) for number in numbers]
        for host in self.hosts:
            host.open()

    def close(self) -> None:
        for host in self.hosts:
            with suppress(CommandFailed):
                host.fast()
                host.kill()
        remove(self.bridge)
        self._lock.truncate(0)
        self._lock.close()


@contextmanager
def connected_hosts(count: int, prefix: str = "ngr") -> Iterator[list[Host]]:
    """Run this many hosts for the duration of the block, then kill their processes and remove them.

    `prefix` (at most 4 letters) begins the names of all interfaces, namespaces and folders. Skip the test if the
    machine does not allow it.
    """
    if problem := why_impossible():
        pytest.skip(problem)
    network = _reserved(prefix)
    try:
        network.open(count)
        yield network.hosts
    finally:
        network.close()


def why_impossible() -> str:
    """Return why hosts cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "nft", "ss", "unshare") if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian packages iproute2 and nftables)"
    tried = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this machine allows no network namespaces: {tried.stderr.strip()}"
    return ""


def _reserved(prefix: str) -> Network:
    """Return a network with a number that no other process uses, after removing what killed processes left."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    for name in sorted(path.name for path in LOCKS.iterdir()):
        if (left := _locked(name)) is not None:
            _forget(left)
    for number in range(1, NETWORKS):
        if (lock := _locked(str(number))) is not None:
            _forget(lock, keep=True)
            lock.write(f"{prefix}{number}\n")
            lock.flush()
            return Network(prefix, number, lock)
    raise AssertionError(f"all {NETWORKS} networks are in use")


def _locked(number: str) -> TextIO | None:
    """Return the locked file of a network; None if another process uses it."""
    lock = (LOCKS / number).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _forget(lock: TextIO, *, keep: bool = False) -> None:
    """Remove the network named in a file, which a killed process left. With `keep`, the file stays locked."""
    lock.seek(0)
    for bridge in lock.read().split():
        remove(bridge)
    lock.truncate(0)
    if not keep:
        lock.close()

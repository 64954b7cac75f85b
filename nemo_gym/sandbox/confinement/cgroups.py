"""Control groups, which limit a whole tree of processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEBIBYTE = 2**20
PREFIX = "nemo_gym-"
EMPTYING_S = 1.0
CPU_PERIOD_US = 100_000
"""The kernel's default period of CPU quotas, in microseconds. In each period, a group can use up its quota."""
CPU_QUOTA_LEAST_US = 1_000


class ControlGroup:
    """A control group that limits its processes: their total memory, their number and optionally their CPUs.

    Works with cgroup versions 1 and 2. The constructor raises `OSError` if this process may not create control groups.
    The process that creates the group's folders locks them until it ends. Leftovers are recognized by the missing
    lock, not by the PID in their name, because another container can have a process with the same PID.
    """

    def __init__(self, name: str, *, memory_mb: int, processes: int, cpus: float | None = None) -> None:
        self._folders: list[Path] = []
        self._locks: list[int] = []
        limits = {"memory": str(memory_mb * MEBIBYTE), "pids": str(processes)}
        if cpus is not None:
            quota = max(int(cpus * CPU_PERIOD_US), CPU_QUOTA_LEAST_US)
            limits |= {"cpu": str(quota), "cpu v2": f"{quota} {CPU_PERIOD_US}"}
        try:
            for parent, files in _parents(has_cpus=cpus is not None).items():
                folder = parent / f"{PREFIX}{os.getpid()}-{name}-{secrets.token_hex(4)}"
                self._locks.append(_locked(folder))
                self._folders.append(folder)
                for controller, file in files.items():
                    (folder / file).write_text(limits[controller])
        except OSError:
            self.close()
            raise

    @property
    def join_files(self) -> list[str]:
        """The `cgroup.procs` files. A process joins the group when it writes its PID, or 0, to each of them."""
        return [str(folder / "cgroup.procs") for folder in self._folders]

    def kill(self) -> None:
        """Kill all processes in the group, and wait for up to `EMPTYING_S` seconds until they are gone."""
        until = time.monotonic() + EMPTYING_S
        while (pids := self._pids()) and time.monotonic() < until:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def close(self) -> None:
        """Kill all processes in the group, and remove the group."""
        self.kill()
        for folder in self._folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        while self._locks:
            os.close(self._locks.pop())

    def _pids(self) -> list[int]:
        with contextlib.suppress(OSError, IndexError):
            return [int(line) for line in (self._folders[0] / "cgroup.procs").read_text().split()]
        return []


def remove_leftovers() -> None:
    """Remove empty groups whose creating process has ended."""
    with contextlib.suppress(OSError):
        for folder in [each for parent in _parents(has_cpus=True) for each in parent.glob(f"{PREFIX}*")]:
            with contextlib.suppress(OSError):
                lock = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    folder.rmdir()
                finally:
                    os.close(lock)


def _locked(folder: Path) -> int:
    """Create a folder and lock it. Return the descriptor that holds the lock."""
    while True:
        folder.mkdir()
        # Another process might remove the folder as a leftover before it is locked. In that case, create it again.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return lock
            os.close(lock)


def _parents(*, has_cpus: bool) -> dict[Path, dict[str, str]]:
    """Map each folder in which to create a group to its controllers, and each controller to its limit file's name."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    if "memory" in own and "pids" in own:
        found = {
            ROOT / "memory" / own["memory"]: {"memory": "memory.limit_in_bytes"},
            ROOT / "pids" / own["pids"]: {"pids": "pids.max"},
        }
        if has_cpus:
            found[ROOT / "cpu" / own.get("cpu", "")] = {"cpu": "cpu.cfs_quota_us"}
        return found
    files = {"memory": "memory.max", "pids": "pids.max"} | ({"cpu v2": "cpu.max"} if has_cpus else {})
    return {ROOT / own.get("", ""): files}

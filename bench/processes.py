"""Process costs read from /proc: CPU time, proportional memory, and the use of the whole machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def parents() -> dict[int, int]:
    """Return the parent pid of each live process."""
    found: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    return found


def tree_of(pid: int) -> list[int]:
    """Return the pids of a process and its live descendants."""
    children: dict[int, list[int]] = {}
    for child, parent in parents().items():
        children.setdefault(parent, []).append(child)
    found, queue = [], [pid]
    while queue:
        each = queue.pop()
        found.append(each)
        queue += children.get(each, [])
    return found


def by_role(root: int, roles: Mapping[int, str], other: str) -> dict[str, list[int]]:
    """Group the processes of a tree by role: a process without a role has that of its nearest ancestor.

    Processes without such an ancestor are `other`.
    """
    parent_of = parents()
    found: dict[str, list[int]] = {other: []}
    for pid in tree_of(root):
        at = pid
        while at not in roles and at != root and at in parent_of:
            at = parent_of[at]
        found.setdefault(roles.get(at, other), []).append(pid)
    return found


def pss_mb(pids: Iterable[int]) -> float:
    """Return the total proportional set size of the processes, in megabytes (1e6 bytes)."""
    total_kb = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total_kb += int(line.split()[1])
    return total_kb * 1024 / 1e6


def cpu_s(pids: Iterable[int]) -> float:
    """Return the user and system time of the processes so far, including finished children."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_S


class MachineTime(NamedTuple):
    """CPU seconds of the whole machine: used, and in total."""

    busy_s: float
    total_s: float


def machine_time() -> MachineTime:
    """Read the counters of all cores together."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return MachineTime((sum(fields) - idle) / TICKS_PER_S, sum(fields) / TICKS_PER_S)

"""What processes cost, read from /proc: CPU time, proportional memory, and what others took meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree_of(pid: int) -> list[int]:
    """A process and all of its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        each = queue.pop()
        found.append(each)
        queue += children.get(each, [])
    return found


def pss_mb(pids: Iterable[int]) -> float:
    """Proportional set size of the processes together, in megabytes (1e6 bytes)."""
    total_kb = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total_kb += int(line.split()[1])
    return total_kb * 1024 / 1e6


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time that the processes have taken so far, their ended children included."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_S


class MachineTime(NamedTuple):
    """How much CPU time the whole machine has spent, and how much it had."""

    busy_s: float
    total_s: float


def machine_time() -> MachineTime:
    """The counters of all cores together."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return MachineTime((sum(fields) - idle) / TICKS_PER_S, sum(fields) / TICKS_PER_S)

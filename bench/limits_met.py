"""Find out why rollouts were lost: from their records, the servers' logs, and the open files of each process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

MOST_REASONS = 3
NOTEWORTHY = re.compile(r"\b(WARNING|ERROR|CRITICAL|Errno|Error|killed|Too many|out of memory)\b")


class Files(NamedTuple):
    """The open files of the process with the most of them, and its limit."""

    opened: int
    allowed: int


OpenFiles = dict[str, Files]
"""By role."""


def open_files(roles: Mapping[str, Sequence[int]]) -> OpenFiles:
    """Return the open files (connections included) and their limit, by role."""
    return {role: max((_files_of(pid) for pid in pids), default=Files(0, 0)) for role, pids in roles.items()}


def _files_of(pid: int) -> Files:
    try:
        limits = Path(f"/proc/{pid}/limits").read_text()
        found = re.search(r"^Max open files\s+(\d+)", limits, re.MULTILINE)
        return Files(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), int(found[1]) if found else 0)
    except OSError:
        return Files(0, 0)


def reasons(folder: Path, log: Iterable[str], files: OpenFiles) -> list[str]:
    """List roles close to their file limit, then the most frequent failures and log messages."""
    found = [f"{role} had {each.opened:,} files open of {each.allowed:,}" for role, each in files.items()
            if each.opened > 0.98 * each.allowed > 0]  # fmt: skip
    failures: Counter[str] = Counter()
    with suppress(FileNotFoundError), (folder / "out_failures.jsonl").open("rb") as lines:
        for line in lines:
            row = orjson.loads(line)
            failures[f"{row.get('_ng_failure_class')}: {_alike(str(row.get('_ng_failure_message')))}"] += 1
    found += [f"{number:,} × {reason}" for reason, number in failures.most_common(MOST_REASONS)]
    collectors_log = folder / "collector.log"
    if collectors_log.exists():
        log = [*log, *(f"(collector) {line}" for line in collectors_log.read_text(errors="replace").splitlines())]
    logged = Counter(_alike(line) for line in log if NOTEWORTHY.search(line))
    found += [f"{number:,} × in the log: {line}" for line, number in logged.most_common(MOST_REASONS)]
    return found


def _alike(message: str) -> str:
    """Replace the numbers in a message, so that messages that differ only in numbers are counted together."""
    return re.sub(r"\d+", "…", message.strip())[:300]

"""Why rollouts were lost: their own records, what the servers logged, and how many files were open of how many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

MOST_REASONS = 3
WORTH_TELLING = re.compile(r"\b(WARNING|ERROR|CRITICAL|Errno|Error|killed|Too many|out of memory)\b")


class Files(NamedTuple):
    """Of the process of a role that has the most of them."""

    opened: int
    allowed: int


OpenFiles = dict[str, Files]
"""By role."""


def open_files(roles: Mapping[str, Sequence[int]]) -> OpenFiles:
    """How many files, connections among them, the processes have open, and may have."""
    return {role: max((_files_of(pid) for pid in pids), default=Files(0, 0)) for role, pids in roles.items()}


def _files_of(pid: int) -> Files:
    try:
        limits = Path(f"/proc/{pid}/limits").read_text()
        found = re.search(r"^Max open files\s+(\d+)", limits, re.MULTILINE)
        return Files(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), int(found[1]) if found else 0)
    except OSError:
        return Files(0, 0)


def reasons(folder: Path, log: Iterable[str], files: OpenFiles) -> list[str]:
    """What the records and the logs tell, the most frequent first, and who had hardly a file left to open."""
    told = [f"{role} had {each.opened:,} files open of {each.allowed:,}" for role, each in files.items()
            if each.opened > 0.98 * each.allowed > 0]  # fmt: skip
    failures: Counter[str] = Counter()
    with suppress(FileNotFoundError), (folder / "out_failures.jsonl").open("rb") as lines:
        for line in lines:
            row = orjson.loads(line)
            failures[f"{row.get('_ng_failure_class')}: {_alike(str(row.get('_ng_failure_message')))}"] += 1
    told += [f"{number:,} × {reason}" for reason, number in failures.most_common(MOST_REASONS)]
    collectors_log = folder / "collector.log"
    if collectors_log.exists():
        log = [*log, *(f"(collector) {line}" for line in collectors_log.read_text(errors="replace").splitlines())]
    logged = Counter(_alike(line) for line in log if WORTH_TELLING.search(line))
    told += [f"{number:,} × in the log: {line}" for line, number in logged.most_common(MOST_REASONS)]
    return told


def _alike(message: str) -> str:
    """Messages that differ by their numbers only are the same."""
    return re.sub(r"\d+", "…", message.strip())[:300]

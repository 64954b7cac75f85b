"""The metrics of a run, from its `<stem>_aggregate_metrics.json`, with their meanings."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics.meanings import meaning_of
from nemo_gym.records.conversation import object_at
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.row import Row

LONGEST_PARSED = 4 << 20
"""If a metrics file has more than this many bytes, its metrics per task are skipped. The viewer does not show them."""
PARTS = ("agent_ref", "agent_metrics", "key_metrics")
_PART = re.compile(rb'^    "(agent_ref|agent_metrics|key_metrics)": \{', re.MULTILINE)
_END = b"\n    }"


def metrics_of(files: RunFiles) -> list[JsonObject]:
    """Return the metrics of all agents (see `Overview` in api.ts). If the file is unreadable, return an empty list."""
    try:
        entries = list(_entries(files.metrics))
    except (OSError, ValueError):
        return []
    return [
        {
            "agent": Row(entry).agent,
            "name": name,
            "value": value,
            "meaning": meaning_of(name),
            "is_key": name in object_at(entry, "key_metrics"),
        }
        for entry in entries
        for name, value in object_at(entry, "agent_metrics").items()
    ]


def _entries(path: Path) -> Iterator[JsonObject]:
    """Yield the entry of each agent. If the metrics file is large, omit the metrics per task."""
    if path.stat().st_size > LONGEST_PARSED:
        yield from _parts_of_entries(path)
        return
    found = orjson.loads(path.read_bytes())
    yield from (entry for entry in (found if isinstance(found, list) else ()) if isinstance(entry, dict))


def _parts_of_entries(path: Path) -> Iterator[JsonObject]:
    # Regular expressions are reliable here: JSON strings have no line breaks, and metrics files are always indented.
    entry: JsonObject = {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for part in _PART.finditer(text):
            name, begin = part[1].decode(), part.end() - 1
            end = begin + 2 if text[begin : begin + 2] == b"{}" else text.find(_END, begin) + len(_END)
            if end <= begin:
                break
            if name in entry:
                yield entry
                entry = {}
            entry[name] = orjson.loads(text[begin:end])
    if entry:
        yield entry

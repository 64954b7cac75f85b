"""The values that the filter offers for a run."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.index.census import Census
from nemo_gym.viewer.index.fields import fields_in
from nemo_gym.viewer.notes import Note

MOST = 100


def facets_of(db: sqlite3.Connection, census: Census, notes: Mapping[TaskKey, Note]) -> JsonObject:
    """Return the `Facets` of `viewer/src/api.ts`.

    Each list of values has at most 100. The list is empty for a field with over 1000 distinct values.
    """
    tags = Counter(tag for note in notes.values() for tag in note.tags)
    reward, steps = census.reward_range, census.steps_range
    return {
        "agents": _counts(census.agents),
        "outcomes": _counts(census.outcomes),
        "failures": _counts(census.failures),
        "tiers": _counts(census.tiers),
        "servers": _counts(census.servers),
        "tools": _counts(census.tools),
        "tags": _counts(tags),
        "fields": list(_fields(db)),
        "reward": {"min": reward[0], "max": reward[1]} if reward else None,
        "steps": {"min": steps[0], "max": steps[1]} if steps else None,
    }


def _counts(counts: Mapping[str, int]) -> list[JsonObject]:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [{"value": value, "count": count} for value, count in ordered[:MOST]]


def _fields(db: sqlite3.Connection) -> Iterable[JsonObject]:
    for name, field in fields_in(db).items():
        counted = db.execute(
            "SELECT value, count FROM counts WHERE field = ? AND count > 0 ORDER BY count DESC, value LIMIT ?",
            (field.id, MOST),
        )
        values = [{"value": _shown(value, field.kind), "count": count} for value, count in counted]
        yield {"name": name, "kind": field.kind, "values": values}


def _shown(value: object, kind: str) -> str:
    if kind == "bool":
        return "true" if value else "false"
    # Keep all digits of a float, because the text is also the filter for this value.
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)

"""Checks of a row that collections share with the preparation of datasets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from nemo_gym.errors import DataError
from nemo_gym.http.json_depth import DEEPEST_ROW, is_deeper_than
from nemo_gym.schemas.row import Row


def check_depth(raw: bytes, path: Path, number: int, accepted: int) -> None:
    """Raise `DataError`, with the line, if a row is nested too deeply for its servers or for serialization."""
    most = min(accepted, DEEPEST_ROW)
    if is_deeper_than(raw, most):
        advice = "Flatten the row, or write a part of it as text."
        if most < DEEPEST_ROW:
            advice += (
                f" Or set max_request_depth, up to {DEEPEST_ROW}, in the blocks of its agent and resources server."
            )
        raise DataError(f"{path}:{number}: brackets nest more than {most} deep. {advice}")


def check_keys(raw: bytes, fields: Mapping[str, object], path: Path, number: int) -> None:
    """Raise `DataError`, with the line, if an object of a row has a key twice, because parsers keep only one value."""
    # Count first, because the exact search parses each object in Python. Texts with quotes only cause the search.
    if raw.count(b'":') + raw.count(b'" :') == _keys_in(fields):
        return

    def check(pairs: list[tuple[str, object]]) -> None:
        counts = Counter(key for key, _ in pairs)
        if len(counts) < len(pairs):
            key = counts.most_common(1)[0][0]
            raise DataError(
                f"{path}:{number}: the key '{key}' occurs more than once in one object, so one of its values would "
                "be lost. Keep one of them."
            )

    json.loads(raw, object_pairs_hook=check)


def _keys_in(fields: Mapping[str, object]) -> int:
    count, left = 0, list[object]([fields])
    while left:
        value = left.pop()
        if isinstance(value, dict):
            count += len(value)
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return count


def agent_ref_problem(row: Row) -> str | None:
    """Return an error message for an `agent_ref` that is not `{name: …}`, or None."""
    reference = row.fields.get("agent_ref")
    if reference is not None and row.agent is None:
        return f"agent_ref must be {{name: AGENT}}, found {reference!r}."
    return None

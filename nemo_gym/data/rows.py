"""Parse the rows of a dataset."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.errors import DataError
from nemo_gym.http.json_depth import DEEPEST_ROW, is_deeper_than
from nemo_gym.jsonl import JsonObject, parse_row


def parse_task(raw: bytes, path: Path, number: int) -> JsonObject:
    """Parse one line as a task. Raise `DataError` with its place if it is not one, or cannot be written again."""
    row = parse_row(raw, path, number)
    if is_deeper_than(raw, DEEPEST_ROW):
        raise DataError(
            f"{path}:{number}: brackets nest more than {DEEPEST_ROW} deep. Flatten the row, or write a part of it as "
            "text."
        )
    return row

"""Read CSV into a list of objects, one per row, by the schema that they should have."""

from __future__ import annotations

import csv
import io
from typing import Any

from nemo_gym.grading.structured.described import Described
from nemo_gym.grading.structured.formats import MOST_VALUES, Unreadable


def read_csv(text: str, row: Described) -> list[dict[str, Any]]:
    """The rows of a CSV text with a header line; raises `Unreadable`.

    A cell becomes the number, boolean or null that the schema wants of its column; lists and objects are written as
    JSON.
    """
    reader = csv.reader(io.StringIO(text.strip("\r\n"), newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = _header([cell.strip() for cell in cells])
                columns = [row.at(name) for name in header]
            elif cells:
                if len(cells) != len(header):
                    raise Unreadable(
                        f"not CSV: line {reader.line_num} has {len(cells)} cells, the header {len(header)}"
                    )
                if len(rows) * len(header) > MOST_VALUES:
                    raise Unreadable(f"more than {MOST_VALUES} values")
                values = [column.json_of(cell) for column, cell in zip(columns, cells, strict=True)]
                rows.append(dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise Unreadable(f"not CSV: line {reader.line_num}: {error}") from error
    if header is None:
        raise Unreadable("not CSV: there is no header line")
    return rows


def _header(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise Unreadable("not CSV: two columns have the same name")
    if len(names) > MOST_VALUES:
        raise Unreadable(f"more than {MOST_VALUES} values")
    return names
